// Contains the phases that several algorithms are built from. Each appends the same number of
// rounds on every rank.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "schedule/schedule.hpp"

namespace ringcomm::schedules {

inline int modulo(int a, int p) { return (a % p + p) % p; }
inline int ceil_log2(int p) { return static_cast<int>(std::bit_width(static_cast<unsigned>(p - 1))); }
inline int bit_floor(int p) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(p))); }

// Returns a schedule without rounds. `root` stays 0 for collectives that have none.
Schedule blank(Collective collective, const char* algorithm, int rank, int size, int blocks,
               Symmetry symmetry = Symmetry::none, int root = 0);

// Appends empty rounds; returns the index of the first.
std::size_t extend(Schedule& schedule, int rounds);

// Returns the lowest of `count` consecutive ranks, beginning at `first` and wrapping at `size`.
inline int lowest(int first, int count, int size) { return first + count > size ? 0 : first; }

// Maps `size` ranks to indices of the 2^k ranks that take part. Among the first 2(size - 2^k)
// ranks, each odd rank sends its buffer to the even rank below it, waits, and receives the result.
// Folded neighbours share an index, so that lower indices always have lower ranks.
struct Fold {
  explicit Fold(int size) : core(bit_floor(size)), rest(size - core) {}
  bool waits(int rank) const { return rank < 2 * rest && rank % 2 == 1; }
  int index(int rank) const { return rank < 2 * rest ? rank / 2 : rank - rest; }
  int rank_at(int index) const { return index < rest ? 2 * index : index + rest; }
  // The host of the last rank has no rank that waits.
  std::vector<int> busiest() const { return {0, core + rest - 1}; }
  int core, rest;
};
// Append the round in which waiting ranks send their buffer, and the round in which they receive
// the result. If the size is a power of two, they append nothing.
void fold_in(Schedule& schedule, const Fold& fold);
void fold_out(Schedule& schedule, const Fold& fold);

// Append binomial trees on block 0, ranks counted from schedule.root; ceil(log2 p) rounds each.
//   p = 4:  1 -> 0, 3 -> 2;  2 -> 0      and back      0 -> 2;  0 -> 1, 2 -> 3
void binomial_reduce(Schedule& schedule);
void binomial_broadcast(Schedule& schedule);

// Append the ring's two halves on `size` blocks; p-1 rounds each, one block to (r+1) mod p per
// round. Share-reduce (a reduce-scatter) leaves rank r with block (r + ahead) mod p reduced;
// share-only (an all-gather) starts from there.
void ring_share_reduce(Schedule& schedule, int ahead);
void ring_share_only(Schedule& schedule, int ahead);

// Append the two halves on a circulant graph: ceil(log2 p) rounds each, any p, p-1 blocks sent in
// each half.
// Share-reduce leaves rank r with block r reduced; share-only starts from there.
void circulant_share_reduce(Schedule& schedule);
void circulant_share_only(Schedule& schedule);

}  // namespace ringcomm::schedules
