// Broadcast over a binomial tree. Ranks are counted from the root.
//
//        root 0:   0 ──────► 2            round 0
//                  0 ──► 1   2 ──► 3      round 1
//
// Cost, L = ceil(log2 p):  Lα + LSβ, depth L: latency-optimal.
// Source: MPICH's broadcast for short messages (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule broadcast_binomial(int rank, int size, int root) {
  Schedule s = blank(Collective::broadcast, "binomial", rank, size, 1, Symmetry::none, root);
  s.busiest = {root};
  binomial_broadcast(s);
  return s;
}

}  // namespace ringcomm::schedules
