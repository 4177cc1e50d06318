// Represents an algorithm as data: the work of rank `rank` of `size`, as rounds of steps on blocks.
// A schedule contains no buffers, dtypes, threads or MPI.
//
// Semantics (shared by the executor, the prover, the pricer and the drawing):
//   - Rounds have the same numbers on all ranks; a rank without work in a round has an empty one
//     there.
//   - Every send of a round reads its block as it was when the round began.
//   - All sends of a round to one peer form one message, with blocks in the order listed. All
//     receives and reduces of a round from one peer take one message. The k-th message a -> b pairs
//     with the k-th that b receives from a.
//   - Writes (receive, reduce, combine, copy) happen in the order listed, after the sends of the
//     round have read.
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
  // reduce, combine: the incoming part (source) is the first operand, because it holds the lowest
  // rank
  bool incoming_first = false;
  std::int32_t peer = -1;  // send, receive, reduce
  std::int32_t block = 0;
  std::int32_t source = -1;    // combine, copy
  bool order_is_open = false;  // reduce, combine: prove() decides incoming_first
  bool operator==(const Step&) const = default;
};

using Round = std::vector<Step>;

// Relation between the ranks' schedules. If there is one, the price follows from rank 0's schedule.
// If d is a peer of rank 0, rank r's peer is r+d mod p (rotation), r xor d, or (reflection) r+d mod
// p for even r and r-d mod p for odd r.
enum class Symmetry : std::uint8_t { none, rotation, exclusive_or, reflection };

// Returns the peer of rank `rank` that corresponds to rank 0's peer `peer`.
inline int symmetric_peer(Symmetry symmetry, int peer, int rank, int size) {
  if (symmetry == Symmetry::exclusive_or) return peer ^ rank;
  const bool mirrored = symmetry == Symmetry::reflection && rank % 2 == 1;
  return ((mirrored ? rank - peer : rank + peer) + size) % size;
}

// Blocks 0 .. blocks-1 are the data. Blocks blocks, blocks+1, ... are scratch: temporary t has the
// size of block temps[t].
//   allreduce, reduce, broadcast, scans:  any number of blocks, split evenly (base/cuts.hpp)
//   allgather, reducescatter:      `size` blocks, block i is rank i's
//   alltoall:                      2*size blocks: block q is sent to rank q and never written;
//                                  block size+q is received from rank q
//   barrier:                       one block, a token that counts the ranks that arrived
//                                  (reduced; a rank may count more than once)
struct Schedule {
  Collective collective = Collective::allreduce;
  std::string algorithm{};
  int rank = 0, size = 1, root = 0;
  int blocks = 1;
  std::vector<int> temps{};
  std::vector<Round> rounds{};
  Symmetry symmetry = Symmetry::none;
  // Busiest ranks of a schedule without a symmetry; the price is computed from these. In every
  // round, one of them has at least as much work as any rank: messages and blocks of the busier
  // direction, and blocks reduced. One of them sends the most blocks in total. Empty: unknown.
  std::vector<int> busiest{};
  // Maximum length, in messages, of a dependency chain that crosses instances, if data is sent only
  // to higher ranks. Ranks can fall behind each other by this number of messages. 0: none, or
  // unknown.
  int lag = 0;

  Round& round(std::size_t index) {  // grows the list if necessary
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
