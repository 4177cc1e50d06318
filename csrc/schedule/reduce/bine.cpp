// Reduction over a Bine tree to the root: the tree of broadcast/bine.cpp, in reverse.
//
//        root 0 of 8:   0 ◄── 1   7 ◄── 6   3 ◄── 2   4 ◄── 5      round 0
//                       0 ◄── 7       3 ◄── 4                      round 1
//                       0 ◄────────── 3                            round 2
//
// Cost, L = ceil(log2 p):  Lα + LSβ + LSγ, depth L.
// Source: De Sensi et al., "Bine trees", SC 2025, arXiv:2508.17311.
#include "schedule/bine.hpp"

namespace ringcomm::schedules {

Schedule reduce_bine(int rank, int size, int root) {
  Schedule s = blank(Collective::reduce, "bine", rank, size, 1, Symmetry::none, root);
  s.busiest = {root, modulo(root + 1, size)};  // the first receives most; the second sends as much as any rank
  bine_reduce(s);
  return s;
}

}  // namespace ringcomm::schedules
