// A schedule, arranged for running: per round its messages and writes. Says nothing of sizes: it serves every segment.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"

namespace ringcomm {

// All that one peer sends us, or gets from us, in one round. Its pieces are pieces[first] .. pieces[last-1].
struct Message {
  std::int32_t peer;  // in the schedule's numbering
  std::uint32_t first, last;
  bool plain = true;      // receives: each piece replaces a block that the round touches only once: may land there
  bool untouched = true;  // receives: nor does the round before touch them: they may land while it still runs
};

struct Write {
  StepKind kind;
  bool incoming_first;
  bool guarded;  // its block is sent in the same round, so the sends must have read it
  std::int32_t block, source;
  std::uint32_t message;  // receive, reduce: what it waits for, counted from the round's first receive
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
  // `blocks_change_first`: the data is written (copied, scaled) just before the first round.
  // Throws Error(invalid) for a step that names a peer or block that there is not.
  Program(const Schedule& schedule, bool blocks_change_first);

  std::vector<RoundProgram> rounds;
  std::vector<Message> messages;
  std::vector<std::int32_t> pieces;  // the blocks of messages
  std::vector<Write> writes;

  bool computes(std::size_t first, std::size_t end) const;  // whether any of these writes does
};

// What a codec makes of a schedule. From when a block is encoded, or comes encoded, until it is computed anew, it holds
// what its encoding decodes to, and that same encoding is what is sent of it again, to others in the same round too:
// all ranks that have the value then have equal bits, whatever the codec would make of it a second time.
struct Encodings {
  std::vector<char> again;  // by piece: sent as it is encoded already
  std::vector<char> kept;   // by block: its encoding is sent again
  // Data blocks that this rank computed last, and did not send since: others, who got the value by message, may hold a
  // coarser one.
  std::vector<std::int32_t> unsettled;
};
Encodings encodings_of(const Schedule& schedule, const Program& program);

}  // namespace ringcomm
