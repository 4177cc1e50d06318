// Butterfly: in round k each rank exchanges data with the rank that differs in bit k. "butterfly"
// selects the cheaper of the two variants.
//
//        0   1   2   3      doubling: full buffers, both reduce.   Lα + LSβ + LSγ, depth L
//        │ ╳ │   │ ╳ │      halving: half the buffer, then a quarter, ...; back by doubling:
//        │   ╳   ╳   │               2Lα + 2fSβ + fSγ, depth 2L          f = (p-1)/p, L = log2 p
//        0   1   2   3      symmetry: exclusive or, when p is a power of two
//
// Any other p is folded to 2^k. Among the first 2(p - 2^k) ranks, each odd rank sends its buffer to
// the even rank below it, waits, and receives the result. That takes two more rounds and 2Sβ + Sγ.
// For this p, let L = k+1. A rank then sends at most L messages with doubling, and 2L with halving.
// The depth is L+1 with doubling, and 2L with halving.
// Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations
//         in MPICH", IJHPCA 19(1), 2005;
//         Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {
namespace {

void exchange_doubling(Schedule& s, const Fold& fold) {
  std::size_t at = extend(s, ceil_log2(fold.core));
  if (fold.waits(s.rank)) return;
  for (int d = 1; d < fold.core; d *= 2, ++at) {
    const int peer = fold.rank_at(fold.index(s.rank) ^ d);
    s.rounds[at] = {send(peer, 0), reduce(peer, 0, peer < s.rank)};
  }
}

void exchange_halving(Schedule& s, const Fold& fold) {
  const int index = fold.index(s.rank);
  std::size_t at = extend(s, 2 * ceil_log2(fold.core));
  if (fold.waits(s.rank)) return;
  int first = 0, count = fold.core;  // the blocks that this rank still reduces; later, the blocks it holds
  for (int d = 1; d < fold.core; d *= 2, ++at) {
    count /= 2;
    const int keep = index & d ? first + count : first, away = index & d ? first : first + count;
    const int peer = fold.rank_at(index ^ d);
    for (int j = 0; j < count; ++j) s.rounds[at].push_back(send(peer, away + j));
    for (int j = 0; j < count; ++j) s.rounds[at].push_back(reduce(peer, keep + j, peer < s.rank));
    first = keep;
  }
  for (int d = fold.core / 2; d > 0; d /= 2, ++at) {
    const int other = index & d ? first - count : first + count;
    const int peer = fold.rank_at(index ^ d);
    for (int j = 0; j < count; ++j) s.rounds[at].push_back(send(peer, first + j));
    for (int j = 0; j < count; ++j) s.rounds[at].push_back(receive(peer, other + j));
    first = std::min(first, other);
    count *= 2;
  }
}

Schedule butterfly(const char* name, int rank, int size, bool halving) {
  const Fold fold(size);
  Schedule s = blank(Collective::allreduce, name, rank, size, halving ? fold.core : 1,
                     fold.rest == 0 ? Symmetry::exclusive_or : Symmetry::none);
  if (fold.rest > 0) s.busiest = fold.busiest();
  fold_in(s, fold);
  halving ? exchange_halving(s, fold) : exchange_doubling(s, fold);
  fold_out(s, fold);
  return s;
}

}  // namespace

Schedule allreduce_butterfly_doubling(int rank, int size, int) {
  return butterfly("butterfly_doubling", rank, size, false);
}
Schedule allreduce_butterfly_halving(int rank, int size, int) {
  return butterfly("butterfly_halving", rank, size, true);
}

}  // namespace ringcomm::schedules
