// Ring all-gather: p-1 steps; each forwards the block received last to (r+1) mod p.
//
//        0 ──► 1 ──► 2 ──► 3 ──► 0      step i: send block r-i, receive block r-1-i
//
// Symmetry: rotation.
// Cost, f = (p-1)/p:  (p-1)α + fSβ: bandwidth-optimal, neighbours only.
// Source: MPICH's all-gather for long messages (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allgather_ring(int rank, int size, int) {
  Schedule s = blank(Collective::allgather, "ring", rank, size, size, Symmetry::rotation);
  constexpr int ahead = 0;  // rank r begins with block r
  ring_share_only(s, ahead);
  return s;
}

}  // namespace ringcomm::schedules
