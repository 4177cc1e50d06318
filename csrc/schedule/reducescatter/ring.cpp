// Ring reduce-scatter: p-1 steps, in each one partial sum goes on to (r+1) mod p and grows by that rank's part.
//
//        0 ──► 1 ──► 2 ──► 3 ──► 0      step i: send block r-1-i, reduce block r-2-i; ends with block r
//
// Symmetry: rotation.
// Cost, f = (p-1)/p:  (p-1)α + fSβ + fSγ: bandwidth-optimal, neighbours only.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule reducescatter_ring(int rank, int size, int) {
  Schedule s = blank(Collective::reducescatter, "ring", rank, size, size, Symmetry::rotation);
  constexpr int ahead = 0;  // rank r's block is its own
  ring_share_reduce(s, ahead);
  return s;
}

}  // namespace ringcomm::schedules
