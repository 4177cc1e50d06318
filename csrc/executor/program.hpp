// Holds a schedule in the form that is executed: messages and writes per round. It contains no
// sizes, and so serves every segment.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace ringcomm {

// The data that one peer sends to this rank, or receives from this rank, in one round. It consists
// of the pieces [first, last) of Program::pieces.
struct Message {
  std::int32_t peer;  // in the schedule's numbering
  std::uint32_t first, last;
  // True if the message may be received in place: each piece replaces a block that no other step of
  // the round uses.
  bool plain = true;
  // True if the previous round does not use the blocks of these pieces. Then the message may be
  // received in place while that round still runs.
  bool untouched = true;
};

struct Write {
  StepKind kind;
  bool incoming_first;
  bool guarded;  // the block is sent in the same round; the sends must read it before this write
  std::int32_t block, source;
  std::uint32_t message;  // receive, reduce: index of the awaited message, relative to the round's first receive
  std::uint32_t piece;    // receive, reduce: index relative to the round's first received piece
};

struct RoundProgram {
  std::uint32_t first_send, first_receive, end;  // messages: sends, then receives
  std::uint32_t first_sent_piece, first_received_piece, end_piece;
  std::uint32_t first_write, end_write;
};

class Program {
 public:
  Program() = default;
  // `blocks_change_first`: the data is written (copied, scaled) just before the first round. Throws
  // Error(invalid) if a step names a peer or block that does not exist.
  Program(const Schedule& schedule, bool blocks_change_first);

  std::vector<RoundProgram> rounds;
  std::vector<Message> messages;
  std::vector<std::int32_t> pieces;  // block of each piece
  std::vector<Write> writes;

  bool computes(std::size_t first, std::size_t end) const;  // true if any of these writes reduces
};

// Use of a codec in a schedule. A block has an encoding from the time when it is encoded, or
// received encoded, until its value is computed again. During that time the block holds the decoded
// value, and every send of the block sends this encoding, also to other peers in the same round. So
// all ranks that have the value have equal bits, even if the codec is not deterministic.
struct Encodings {
  std::vector<char> again;  // by piece: an existing encoding is sent
  std::vector<char> kept;   // by block: its encoding is sent again later
  // Data blocks that this rank computed last and did not encode afterwards. Ranks that received the
  // encoding of this value hold a coarser value.
  std::vector<std::int32_t> noncanonical;
};
Encodings encodings_of(const Schedule& schedule, const Program& program);

}  // namespace ringcomm
