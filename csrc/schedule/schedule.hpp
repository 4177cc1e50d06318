// An algorithm is data: what rank `rank` of `size` does, as rounds of steps on blocks. No buffers, dtypes, threads or
// MPI.
//
// Meaning (the executor, the prover, the pricer and the drawing share it):
//   - Rounds are numbered alike on all ranks; a rank with nothing to do in a round has an empty one there.
//   - Every send of a round sees its block as it was when the round began.
//   - All sends of a round to one peer travel as one message, blocks in the order listed; likewise all receives and
//     reduces of a round from one peer take one message. The k-th message a -> b meets the k-th that b takes from a.
//   - Writes (receive, reduce, combine, copy) happen in the order listed, after the sends of the round have read.
//   - A round ends when its sends and receives are complete. Nothing else synchronises ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace ringcomm {

enum class StepKind : std::uint8_t {
  send,     // send block to peer
  receive,  // receive block from peer, replacing it
  reduce,   // receive a part from peer and reduce it into block
  combine,  // block = source op block, or block op source: a local reduction
  copy,     // block = source, local
};

inline bool receives(StepKind kind) { return kind == StepKind::receive || kind == StepKind::reduce; }
inline bool computes(StepKind kind) { return kind == StepKind::reduce || kind == StepKind::combine; }
inline bool is_local(StepKind kind) { return kind == StepKind::combine || kind == StepKind::copy; }

struct Step {
  StepKind kind;
  // reduce, combine: the incoming part (source) is the first operand, because it holds the lowest rank
  bool incoming_first = false;
  std::int32_t peer = -1;  // send, receive, reduce
  std::int32_t block = 0;
  std::int32_t source = -1;    // combine, copy
  bool order_is_open = false;  // reduce, combine: prove() decides incoming_first
  bool operator==(const Step&) const = default;
};

using Round = std::vector<Step>;

// How the ranks' schedules look alike, so that one rank prices all: peers by rotation (r+d mod p) or by r xor d.
enum class Symmetry : std::uint8_t { none, rotation, exclusive_or };

// Blocks 0 .. blocks-1 are the data. Blocks blocks, blocks+1, ... are scratch: temporary t has the size of block
// temps[t].
//   allreduce, reduce, broadcast, scans:  any number of blocks, an even split of the buffer (base/cuts.hpp: split)
//   allgather, reducescatter:      `size` blocks, block i is rank i's
//   alltoall:                      2*size blocks: block q goes to rank q, never written; block size+q comes from rank q
//   barrier:                       one block, a token that counts who has arrived (reduced, more than once allowed)
struct Schedule {
  Collective collective = Collective::allreduce;
  std::string algorithm{};
  int rank = 0, size = 1, root = 0;
  int blocks = 1;
  std::vector<int> temps{};
  std::vector<Round> rounds{};
  Symmetry symmetry = Symmetry::none;
  // Without a symmetry: ranks of which in any round one has as much to do as any rank (messages, blocks each way, the
  // busier way counting; blocks reduced), and one sends as much in all, so that these price all. Empty: not known.
  std::vector<int> busiest{};
  // Where data only goes to higher ranks: the most messages, of any instances, that follow from one another on the way
  // up. Instances in a row let ranks fall behind each other by so many messages. 0: by none, or not known.
  int lag = 0;

  Round& round(std::size_t index) {  // grows to have it
    if (rounds.size() <= index) rounds.resize(index + 1);
    return rounds[index];
  }
};

inline Step send(int peer, int block) { return {StepKind::send, false, peer, block}; }
inline Step receive(int peer, int block) { return {StepKind::receive, false, peer, block}; }
inline Step reduce(int peer, int block, bool incoming_first) { return {StepKind::reduce, incoming_first, peer, block}; }
inline Step combine(int source, int block, bool source_first) {
  return {StepKind::combine, source_first, -1, block, source};
}
inline Step copy_block(int source, int block) { return {StepKind::copy, false, -1, block, source}; }

}  // namespace ringcomm
