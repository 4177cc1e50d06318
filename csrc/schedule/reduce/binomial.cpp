// Reduction over a binomial tree to the root. Ranks are counted from the root.
//
//        root 0:   0 ◄── 1   2 ◄── 3      round 0
//                  0 ◄────── 2            round 1
//
// Cost, L = ceil(log2 p):  Lα + LSβ + LSγ, depth L: latency-optimal.
// Source: MPICH's reduce for short messages (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule reduce_binomial(int rank, int size, int root) {
  Schedule s = blank(Collective::reduce, "binomial", rank, size, 1, Symmetry::none, root);
  s.busiest = {root, modulo(root + 1, size)};  // one receives most; the other sends as much as any rank
  binomial_reduce(s);
  return s;
}

}  // namespace ringcomm::schedules
