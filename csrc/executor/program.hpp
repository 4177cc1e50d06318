// Holds a schedule in the form that is executed: messages and writes per round. It contains no
// sizes, and so serves every segment.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace ringcomm {

// The data that one peer sends to this rank, or receives from it, in one round. Its pieces are
// pieces[first] .. pieces[last-1].
struct Message {
  std::int32_t peer;  // in the schedule's numbering
  std::uint32_t first, last;
  // True if the message may be received in place: each piece replaces a block that no other step of
  // the round uses.
  bool plain = true;
  bool untouched = true;  // true if it may be received while the previous round still runs
};

struct Write {
  StepKind kind;
  bool incoming_first;
  bool guarded;  // its block is sent in the same round, so the sends must have read it first
  std::int32_t block, source;
  std::uint32_t message;  // receive, reduce: the awaited message, counted from the round's first receive
  std::uint32_t piece;    // receive, reduce: counted from the round's first received piece
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

// Use of a codec in a schedule. A block has an encoding from the time it is encoded or received
// encoded, until it is computed anew. Meanwhile it holds the decoded value, and the same encoding
// is sent for it again, also to other peers in the same round. So all ranks that have the value
// have equal bits, even if the codec is not deterministic.
struct Encodings {
  std::vector<char> again;  // by piece: an existing encoding is sent
  std::vector<char> kept;   // by block: its encoding is sent again later
  // Data blocks that this rank computed last and did not send afterwards. Peers that received the
  // value may hold a coarser one.
  std::vector<std::int32_t> unsettled;
};
Encodings encodings_of(const Schedule& schedule, const Program& program);

}  // namespace ringcomm
