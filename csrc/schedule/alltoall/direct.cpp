// Direct: every rank sends to every rank in one round, staggered: to r+1, r+2, ...;
// from r-1, r-2, ...
//
//        0 ◄──► 1 ◄──► 2 ◄──► 3, 0 ◄──► 2, 1 ◄──► 3, 0 ◄──► 3       all posted together
//
// Cost, f = (p-1)/p:  (p-1)α + fSβ, depth 1: no rank waits for a slow peer before it serves other
// peers. Symmetry: rotation.
// Source: the spread-out algorithm of MPICH's all-to-all for medium messages (IJHPCA 19(1), 2005).
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule alltoall_direct(int rank, int size, int) {
  Schedule s = blank(Collective::alltoall, "direct", rank, size, 2 * size, Symmetry::rotation);
  Round& round = s.round(0);
  round.push_back(copy_block(rank, size + rank));
  for (int i = 1; i < size; ++i) round.push_back(send(modulo(rank + i, size), modulo(rank + i, size)));
  for (int i = 1; i < size; ++i) round.push_back(receive(modulo(rank - i, size), size + modulo(rank - i, size)));
  return s;
}

}  // namespace ringcomm::schedules
