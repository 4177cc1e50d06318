// Contains Bine (binomial negabinary) trees, and the phases that are built from them. Swing uses
// the same pattern.
//
// Nodes are offsets from the root. In step s an even node x is paired with x + d(s), an odd one
// with x - d(s), where d(s) = (1 - (-2)^(s+1)) / 3 = 1, -1, 3, -5, 11, ... The distance |d(s)| is
// about 2/3 of a binomial tree's 2^s.
//
//   8 nodes, root 0:   step 2    -2  -1  [0]──────────►3   4   5
//                      step 1    -2  -1◄──0   1   2   [3]──►4   5
//                      step 0    -2◄─-1   0──►1   2◄───3    4──►5
//
// Source: De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
// locality", SC 2025, arXiv:2508.17311; the pairs are Swing's (arXiv:2401.09356).
#pragma once

#include "schedule/phases.hpp"

namespace ringcomm::schedules {

// A tree of `size` nodes, for any size. The 2^L nodes that the steps L-1, ..., 0 reach are
// consecutive integers. Of these the tree keeps `size`, also consecutive, so that every node's
// parent is kept. For that, the even bits of 2^L - size are the number of nodes cut below, the odd
// bits the number cut above.
class BineTree {
 public:
  struct Nodes {  // consecutive
    int first, last;
    bool contain(int node) const { return first <= node && node <= last; }
    int count() const { return last - first + 1; }
  };

  explicit BineTree(int size);
  int steps() const { return steps_; }
  const Nodes& nodes() const { return nodes_; }
  int node_at(int offset) const { return offset <= nodes_.last ? offset : offset - nodes_.count(); }  // offset < size
  // Returns the node that `node` is paired with in a step.
  static int mate(int node, int step);
  // Returns the steps on the path from the root: bit L-1-s is set if step s is one of them.
  unsigned path(int node) const;
  // Returns the step that pairs the node with its parent; steps() for the root.
  int level(int node) const { return steps_ - static_cast<int>(std::bit_width(path(node))); }
  // Returns the node and its descendants over steps below `step`.
  Nodes below(int node, int step) const;

 private:
  int steps_;
  Nodes nodes_;
};

// Append a tree on block 0, from schedule.root or to it; L = ceil(log2 p) rounds, any p.
void bine_broadcast(Schedule& schedule);
void bine_reduce(Schedule& schedule);

// Append the two halves on `size` blocks; L rounds each, any p, p-1 blocks sent in each half. Every
// block has a tree, and every rank is the root of one. If p is even, the trees of odd roots are
// mirrored: all trees then give a rank one peer per round (Symmetry::reflection), as in Swing. If p
// is odd, a rank has up to two peers per round, on either side (Symmetry::rotation).
// Share-reduce leaves each root with its block reduced; share-only starts from there.
void bine_share_reduce(Schedule& schedule);
void bine_share_only(Schedule& schedule);

}  // namespace ringcomm::schedules
