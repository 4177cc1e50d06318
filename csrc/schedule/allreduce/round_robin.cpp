// Round robin: block b belongs to rank b. Each rank sends each block directly to its owner. Owners
// reduce, and send the result directly to all ranks. Sends are staggered (to r+1, r+2, ...; from
// r-1, r-2, ...), so that ranks do not all send to the same rank at the same time.
//
//        step 1: 0 ► 1 ► 2 ► 3 ► 0      step 2: 0 ◄► 2, 1 ◄► 3      step 3: 0 ► 3 ► 2 ► 1 ► 0
//
//        round 0: rank r sends block q to q and reduces all other ranks' block r
//        round 1: rank r sends block r to all ranks
//        symmetry: rotation
//
// Cost, f = (p-1)/p:  2(p-1)α + 2fSβ + fSγ, depth 2, as all sends of a round are posted together.
// Source: Zhao and Canny, "Sparse allreduce: efficient scalable communication for power-law data",
// arXiv:1312.3020.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allreduce_round_robin(int rank, int size, int) {
  Schedule s = blank(Collective::allreduce, "round_robin", rank, size, size, Symmetry::rotation);
  if (size == 1) return s;
  extend(s, 2);
  for (int d = 1; d < size; ++d) {
    const int to = modulo(rank + d, size);
    s.rounds[0].push_back(send(to, to));
    s.rounds[1].push_back(send(to, rank));
  }
  for (int d = 1; d < size; ++d) {
    const int from = modulo(rank - d, size);
    // Parts are taken from rank-1 down to 0, each lower than all before; then from p-1 down, when
    // rank 0's part is already included.
    s.rounds[0].push_back(reduce(from, rank, from < rank));
    s.rounds[1].push_back(receive(from, from));
  }
  return s;
}

}  // namespace ringcomm::schedules
