// Circulant reduce-scatter: Bruck's all-gather reversed, for any p.
//
//        p = 4:  round 0, to r+2: partial sums of blocks r+2, r+3;   round 1, to r+1: of block r+1
//
// Symmetry: rotation.
// Cost, L = ceil(log2 p), f = (p-1)/p:  Lα + fSβ + fSγ: optimal in all three.
// Source: Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms",
// arXiv:2410.14234.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule reducescatter_circulant(int rank, int size, int) {
  Schedule s = blank(Collective::reducescatter, "circulant", rank, size, size, Symmetry::rotation);
  circulant_share_reduce(s);
  return s;
}

}  // namespace ringcomm::schedules
