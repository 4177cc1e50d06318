// Dissemination barrier: in round k rank r notifies r + 2^k and is notified by r - 2^k. After L
// rounds every rank has a direct or indirect notification of all ranks.
//
//        round 0: 0 ► 1 ► 2 ► 3 ► 0      round 1: 0 ◄► 2, 1 ◄► 3
//
// Cost, L = ceil(log2 p):  Lα for any p: latency-optimal. Symmetry: rotation.
// Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", Int. J. Parallel
// Programming 17(1), 1988.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule barrier_dissemination(int rank, int size, int) {
  Schedule s = blank(Collective::barrier, "dissemination", rank, size, 1, Symmetry::rotation);
  std::size_t at = extend(s, ceil_log2(size));
  for (int d = 1; d < size; d *= 2, ++at) {
    const int from = modulo(rank - d, size);
    s.rounds[at] = {send(modulo(rank + d, size), 0), reduce(from, 0, from < rank)};
  }
  return s;
}

}  // namespace ringcomm::schedules
