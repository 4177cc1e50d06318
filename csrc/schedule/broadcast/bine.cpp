// Broadcast over a Bine tree. Ranks are counted from the root, in both directions.
//
//        root 0 of 8:   0 ──────────► 3                            round 0
//                       0 ──► 7       3 ──► 4                      round 1
//                       0 ──► 1   7 ──► 6   3 ──► 2   4 ──► 5      round 2
//
// Cost, L = ceil(log2 p):  Lα + LSβ, depth L, as the binomial tree's. Distances between ranks are
// about a third shorter, so fewer links of a torus, a dragonfly or a tapered fat tree are used.
// Source: De Sensi et al., "Bine trees", SC 2025, arXiv:2508.17311 (distance-halving tree). For
// sizes that are no powers of two see bine.hpp.
#include "schedule/bine.hpp"

namespace ringcomm::schedules {

Schedule broadcast_bine(int rank, int size, int root) {
  Schedule s = blank(Collective::broadcast, "bine", rank, size, 1, Symmetry::none, root);
  s.busiest = {root};
  bine_broadcast(s);
  return s;
}

}  // namespace ringcomm::schedules
