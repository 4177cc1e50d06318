// One run of a schedule on one segment. An instance is opened again for a later segment and keeps its memory.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "messages/program.hpp"
#include "messages/run_schedule.hpp"
#include "messages/staging.hpp"
#include "schedule/layout.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

// What all instances of a task share.
struct RunContext {
  Transport& transport;
  std::shared_ptr<const Schedule> schedule;
  std::vector<int> peers;
  Layout layout;
  const std::byte* source;  // null: the layout holds the input already
  RunOptions options;
  Program program;
  Encodings encodings;  // with a codec

  bool fills() const { return source || !options.pre.identity(); }  // the layout is written before the first round
};

class Instance {
 public:
  Instance(const RunContext& context, int lane) : context_(context), lane_(lane) {}
  void open(std::size_t segment, int tag);
  bool advance();  // true if anything moved
  bool finished() const { return round_ == context_.program.rounds.size(); }
  void abandon() noexcept;

 private:
  struct Bytes {
    std::byte* data = nullptr;
    std::size_t nbytes = 0;
  };
  struct Flight {
    Ticket ticket;
    std::uint32_t message;  // receives: counted from the round's first receive
    std::size_t nbytes;     // expected
    bool in_place;          // sends: reads a block, not staging
  };
  struct Incoming {
    std::byte* data = nullptr;
    std::size_t nbytes = 0;  // expected; with a codec: the most that may come
    std::size_t arrived = 0;
    std::uint32_t pending = 0;  // chunks under way
    bool in_place = false, posted = false;
  };
  // A round's receives, and the memory of all its messages. Two alternate: the next round's receives are posted early.
  struct Stage {
    Staging memory;
    std::size_t sends_from = 0;      // offset of the memory for sends
    std::vector<Incoming> incoming;  // by message
    std::vector<Bytes> arrived;      // by received piece, what came for it; empty in place
    std::vector<Flight> flights;
  };

  const RoundProgram& program(std::size_t round) const { return context_.program.rounds[round]; }
  Stage& stage(std::size_t round) { return stages_[round % 2]; }
  std::size_t bytes_of(const Extent& extent) const { return extent.count * context_.layout.item_size(); }
  const Extent& extent(std::int32_t block) const { return extents_[static_cast<std::size_t>(block)]; }
  const Extent& extent_of(std::uint32_t piece) const { return extent(context_.program.pieces[piece].block); }

  void find_extents();
  void make_room_for_encodings();
  void fill();    // copies and scales the input
  void finish();  // settles and scales the result
  void settle(std::int32_t block);
  void prepare(std::size_t round);
  void prepare_receive(Stage& stage, const Message& message, Incoming& incoming, std::size_t& room) const;
  void point_pieces(std::size_t round);
  void post_receives(std::size_t round, bool early);
  void begin_round();
  void post_sends();
  void post_send(const Message& message, std::byte*& free);
  void fly(const Message& message, Bytes bytes, std::size_t capacity, bool in_place);
  bool collect(std::vector<Flight>& flights, bool receiving);
  void receive(const Flight& flight, const Arrival& arrival);
  bool run_writes();
  void apply(const Write& write);
  void reduce(const Write& write, const Extent& block, const std::byte* incoming) const;

  // What the timeline shows (instance_trace.cpp).
  void trace_begin();
  void trace_round();  // round_ is the next one
  bool reduces(std::size_t round) const;

  // How a message looks on the wire (instance_wire.cpp).
  std::size_t wire_bytes(const Message& message) const;  // with a codec: the most
  bool contiguous(const Message& message, Bytes& whole) const;
  bool alone(const Message& message) const;  // one piece at most is not empty
  Bytes pack(const Message& message, std::byte* to) const;
  Bytes encode(const Message& message, std::byte* to);
  Bytes encode_piece(std::uint32_t piece, std::byte* to, bool copy_twin);
  std::size_t encode_block(std::int32_t block, std::byte* to);  // which then holds what that decodes to
  void keep(std::int32_t block, Bytes encoded);
  void find_pieces(Stage& stage, std::uint32_t message) const;  // in an encoded message that has come

  const RunContext& context_;
  const int lane_;                   // among the task's instances
  std::int64_t phase_begun_ns_ = 0;  // 0: not traced
  std::size_t segment_ = 0;
  int tag_ = 0;
  std::size_t round_ = 0;
  std::uint32_t write_ = 0;      // the next one
  std::vector<Extent> extents_;  // of all blocks and temporaries
  Staging temporaries_, decoded_, encodings_;
  std::array<Stage, 2> stages_;
  std::vector<Flight> sends_;
  std::size_t reading_blocks_ = 0;  // sends under way that read blocks in place
  std::vector<Bytes> encoded_;      // by sent piece of the round
  std::vector<Bytes> kept_;         // by block, in encodings_: the last encoding of those that are sent again
};

}  // namespace ringcomm
