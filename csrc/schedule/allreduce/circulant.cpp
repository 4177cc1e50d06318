// Circulant: generalises halving-doubling to any p, without folding.
//
// share-reduce, p = 4: round 0, to r+2: blocks r+2, r+3  share-only: round 2, to r-1: block r
//                      round 1, to r+1: block r+1                    round 3, to r-2: blocks r, r+1
//
// Distances fall 2^(L-1), ..., 1 and rise again. At distance d, one message carries min(d, p-d)
// blocks. Symmetry: rotation.
// Cost, L = ceil(log2 p), f = (p-1)/p:  2Lα + 2fSβ + fSγ, depth 2L.
// Source: Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
// arXiv:2410.14234; the second half is by Bruck et al., IEEE TPDS 8(11), 1997.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allreduce_circulant(int rank, int size, int) {
  Schedule s = blank(Collective::allreduce, "circulant", rank, size, size, Symmetry::rotation);
  circulant_share_reduce(s);
  circulant_share_only(s);
  return s;
}

}  // namespace ringcomm::schedules
