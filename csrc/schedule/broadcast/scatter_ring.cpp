// Broadcast by a binomial scatter of the blocks, then a ring all-gather.
//
//        0 ──2,3──► 2                          round 0
//        0 ──1──► 1    2 ──3──► 3              round 1
//        0 ──► 1 ──► 2 ──► 3 ──► 0             p-1 rounds: each forwards one block
//
// Cost, L = ceil(log2 p), f = (p-1)/p:  (L+p-1)α + 2fSβ: bandwidth-optimal within a factor 2, in
// few rounds.
// Source: van de Geijn's broadcast, MPICH's for long messages (Thakur, Rabenseifner, Gropp, IJHPCA
// 19(1), 2005).
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule broadcast_scatter_ring(int rank, int size, int root) {
  Schedule s = blank(Collective::broadcast, "scatter_ring", rank, size, size, Symmetry::none, root);
  s.busiest = {root};
  const int v = modulo(rank - root, size);  // the rank ends the scatter with block v
  std::size_t at = extend(s, ceil_log2(size));
  for (int d = size > 1 ? bit_floor(size - 1) : 0; d > 0; d /= 2, ++at) {
    if (v % (2 * d) == 0) {
      for (int b = v + d; b < std::min(v + 2 * d, size); ++b) s.rounds[at].push_back(send(modulo(rank + d, size), b));
    } else if (v % (2 * d) == d) {
      for (int b = v; b < std::min(v + d, size); ++b) s.rounds[at].push_back(receive(modulo(rank - d, size), b));
    }
  }
  ring_share_only(s, -root);  // the rank v places after the root holds block v
  return s;
}

}  // namespace ringcomm::schedules
