// Holds the messages of one round in flight: their memory, posted operations, and received data. An
// instance alternates two of these objects, because the next round's receives are posted early.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/packing.hpp"

namespace ringcomm {

class RoundMessages {
 public:
  RoundMessages(const RunContext& context, Packing& packing) : context_(context), packing_(packing) {}
  // Determines the addresses of a round's messages, and allocates memory for messages that are not
  // sent or received in place.
  void prepare(const RoundProgram& round);
  // `early` (the previous round still runs): posts only receives into memory that the previous
  // round neither reads nor writes.
  void post_receives(int tag, bool early);
  void post_sends(int tag);
  bool collect() { return collect(receives_, true) | collect(sends_, false); }  // true if an operation has completed
  bool over() const { return sends_.empty() && receives_.empty(); }

  // `message` and `piece` are indices relative to the first message and piece that the round
  // receives.
  bool here(std::uint32_t message) const { return incoming_[message].pending == 0; }
  Bytes piece(std::uint32_t piece) const { return pieces_[piece]; }  // null if it was received in place
  bool reads_blocks() const { return reading_blocks_ > 0; }          // a send in flight reads blocks

  bool abandon() noexcept;  // true if an operation was in flight
  void leak() noexcept { memory_.leak(); }

 private:
  struct Flight {  // a chunk of a message in flight
    Ticket ticket;
    std::uint32_t message;  // for receives
    std::size_t nbytes;     // expected
    bool plain;             // sends: reads a block, not memory_
  };
  struct Incoming {
    Bytes bytes;  // address, and number of bytes expected; with a codec: the maximum
    std::size_t arrived = 0;
    std::uint32_t pending = 0;  // chunks in flight
    bool plain = false, posted = false;
  };

  const Message& received(std::uint32_t index) const { return context_.program.messages[round_.first_receive + index]; }
  void post_send(const Message& message, int tag, std::byte*& free);
  bool collect(std::vector<Flight>& flights, bool receiving);
  void receive(const Flight& flight, const Arrival& arrival);

  const RunContext& context_;
  Packing& packing_;
  RoundProgram round_{};
  Staging memory_;
  std::byte* sends_from_ = nullptr;  // in memory_
  std::vector<Incoming> incoming_;
  std::vector<Bytes> pieces_;  // by received piece: its data
  std::vector<Flight> receives_, sends_;
  std::size_t reading_blocks_ = 0;  // sends in flight that read blocks, not memory_
};

}  // namespace ringcomm
