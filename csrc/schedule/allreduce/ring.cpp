// Ring: p-1 share-reduce steps (a reduce-scatter), then p-1 share-only steps (an all-gather). Each
// step sends one block to (r+1) mod p.
//
//        0 ──► 1 ──► 2 ──► 3 ──┐      share-reduce step i: send block r-i, reduce block r-1-i;
//        ▲                     │        rank r ends with block r+1
//        └─────────────────────┘      share-only step i: send block r+1-i, receive block r-i
//
// Cost, f = (p-1)/p:  2(p-1)α + 2fSβ + fSγ, depth 2(p-1); every link carries 2fS bytes, the
// minimum.
// Symmetry: rotation.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", JPDC 69(2), 2009.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allreduce_ring(int rank, int size, int) {
  Schedule s = blank(Collective::allreduce, "ring", rank, size, size, Symmetry::rotation);
  constexpr int ahead = 1;  // rank r begins by sending block r, so it completes block r+1
  ring_share_reduce(s, ahead);
  ring_share_only(s, ahead);
  return s;
}

}  // namespace ringcomm::schedules
