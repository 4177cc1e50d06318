// Ring reduce-scatter: p-1 steps; each sends one partial sum to (r+1) mod p, which adds its part.
//
//        0 ──► 1 ──► 2 ──► 3 ──► 0  step i: send block r-1-i, reduce block r-2-i; ends with block r
//
// Symmetry: rotation.
// Cost, f = (p-1)/p:  (p-1)α + fSβ + fSγ: bandwidth-optimal, neighbours only.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 69(2), 2009.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule reducescatter_ring(int rank, int size, int) {
  Schedule s = blank(Collective::reducescatter, "ring", rank, size, size, Symmetry::rotation);
  constexpr int ahead = 0;  // rank r ends with block r
  ring_share_reduce(s, ahead);
  return s;
}

}  // namespace ringcomm::schedules
