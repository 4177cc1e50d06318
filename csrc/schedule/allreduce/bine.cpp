// Bine butterflies, which for ranks in one dimension are Swing: in the round of distance d(s) = 1,
// -1, 3, -5, 11, ... an even rank r exchanges data with r + d(s), an odd one with r - d(s). "swing"
// selects the cheaper of the two variants.
//
//        0   1   2   3   4   5   6   7      halving: half the buffer over distance 1, then a
//        └─1─┘   └───┘   └───┘   └───┘        quarter, ...; then back:
//        ┘   └─1─┘   └───┘   └───┘   └        2Lα + 2fSβ + fSγ, depth 2L        f = (p-1)/p
//        └─────3─────┘   └─────3─────┘      doubling: full buffers, the longest distance first:
//        (also 1 and 6, 2 and 5)              Lα + LSβ + LSγ, depth L
//
// Symmetry: reflection, if p is even (halving) or a power of two (doubling).
// Any other p: halving needs no folding (see bine.hpp). For odd p its symmetry is rotation, and a
// rank has up to two peers per round. Doubling is folded to a power of two, as the butterfly is.
//
// Doubling begins with the longest distance. Only then do all ranks that have exchanged data hold
// the same sum, with equal bits. Before the round of d(s), rank r's sum is held by the ranks that
// equal r, or r's peer in the round of d(s+1), modulo 2^(s+2).
// Source: De Sensi et al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024,
//         arXiv:2401.09356; "Bine trees", SC 2025, arXiv:2508.17311.
#include "schedule/bine.hpp"

namespace ringcomm::schedules {
namespace {

// Returns the lowest of the indices that hold the same sum as `index` before the round of `step`.
int lowest_of_group(int index, int step, int steps) {
  if (step == steps - 1) return index;
  const int residue = (1 << (step + 2)) - 1;
  return std::min(index & residue, BineTree::mate(index, step + 1) & residue);
}

}  // namespace

Schedule allreduce_bine_doubling(int rank, int size, int) {
  const Fold fold(size);
  Schedule s = blank(Collective::allreduce, "bine_doubling", rank, size, 1,
                     fold.rest == 0 ? Symmetry::reflection : Symmetry::none);
  if (fold.rest > 0) s.busiest = fold.busiest();
  fold_in(s, fold);
  const int steps = ceil_log2(fold.core), index = fold.index(rank);
  std::size_t at = extend(s, steps);
  for (int step = steps - 1; step >= 0 && !fold.waits(rank); --step, ++at) {
    const int other = BineTree::mate(index, step) & (fold.core - 1), peer = fold.rank_at(other);
    const bool first = lowest_of_group(other, step, steps) < lowest_of_group(index, step, steps);
    s.rounds[at] = {send(peer, 0), reduce(peer, 0, first)};
  }
  fold_out(s, fold);
  return s;
}

Schedule allreduce_bine_halving(int rank, int size, int) {
  Schedule s = blank(Collective::allreduce, "bine_halving", rank, size, size,
                     size % 2 == 0 ? Symmetry::reflection : Symmetry::rotation);
  bine_share_reduce(s);
  bine_share_only(s);
  return s;
}

}  // namespace ringcomm::schedules
