// The messages of one round, on their way: their memory, what has been posted, and what has come. Two rounds alternate,
// for the next round's receives are posted early.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/packing.hpp"

namespace ringcomm {

class RoundMessages {
 public:
  RoundMessages(const RunContext& context, Packing& packing) : context_(context), packing_(packing) {}
  // Finds where the messages of a round will lie, and has memory for those that do not lie in blocks.
  void prepare(const RoundProgram& round);
  // `early`: while the round before still runs, only what lands where that round neither reads nor writes.
  void post_receives(int tag, bool early);
  void post_sends(int tag);
  bool collect() { return collect(receives_, true) | collect(sends_, false); }  // true if anything has completed
  bool over() const { return sends_.empty() && receives_.empty(); }

  // Messages and pieces are counted from the round's first received ones.
  bool here(std::uint32_t message) const { return incoming_[message].pending == 0; }
  Bytes piece(std::uint32_t piece) const { return pieces_[piece]; }  // nothing: it came to where it belongs
  bool reads_blocks() const { return reading_blocks_ > 0; }          // a send under way does

  bool abandon() noexcept;  // true if anything was under way
  void strand() noexcept { memory_.strand(); }

 private:
  struct Flight {  // a chunk of a message
    Ticket ticket;
    std::uint32_t message;  // receives
    std::size_t nbytes;     // expected
    bool plain;             // sends: reads a block, not memory_
  };
  struct Incoming {
    Bytes bytes;  // where it lands, expected; with a codec: the most that may come
    std::size_t arrived = 0;
    std::uint32_t pending = 0;  // chunks under way
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
  std::vector<Bytes> pieces_;  // by received piece, what came for it
  std::vector<Flight> receives_, sends_;
  std::size_t reading_blocks_ = 0;  // sends under way
};

}  // namespace ringcomm
