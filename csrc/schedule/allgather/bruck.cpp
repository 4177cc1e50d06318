// Bruck's all-gather: distances 1, 2, 4, ...; each round sends all blocks that the rank holds so
// far. The blocks are separate, so parts of unequal size need no rotation of memory.
//
//        p = 4:  round 0, to r-1: block r;   round 1, to r-2: blocks r, r+1.  Symmetry: rotation.
//
// Cost, L = ceil(log2 p), f = (p-1)/p:  Lα + fSβ for any p: optimal in both, but its long distances
// share links.
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8(11), 1997.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allgather_bruck(int rank, int size, int) {
  Schedule s = blank(Collective::allgather, "bruck", rank, size, size, Symmetry::rotation);
  circulant_share_only(s);
  return s;
}

}  // namespace ringcomm::schedules
