// Tree: a binomial reduction to the root (default rank 0), then a binomial broadcast from it.
//
//        0 ◄── 1   2 ◄── 3      round 0
//        0 ◄────── 2            round 1
//        0 ──────► 2            round 2
//        0 ──► 1   2 ──► 3      round 3
//
// Cost, L = ceil(log2 p):  2Lα + 2LSβ + LSγ, depth 2L; no rank sends more than L messages of S
// bytes.
// Source: MPICH's reduce and broadcast for short messages (Thakur, Rabenseifner, Gropp, IJHPCA
// 19(1), 2005).
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allreduce_tree(int rank, int size, int root) {
  Schedule s = blank(Collective::allreduce, "tree", rank, size, 1, Symmetry::none, root);
  s.busiest = {root};
  binomial_reduce(s);
  binomial_broadcast(s);
  return s;
}

}  // namespace ringcomm::schedules
