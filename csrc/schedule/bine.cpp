// Implements Bine trees and the phases that are built from them.
#include "schedule/bine.hpp"

#include <utility>

namespace ringcomm::schedules {
namespace {

constexpr int kEvenBits = 0x55555555, kOddBits = 0x2aaaaaaa;

// Locates the tree of one block, in which a given rank is a given node.
struct BlockTree {
  BlockTree(int rank, int node, int ranks)
      : size(ranks), turn(ranks % 2 == 1 || (rank + node) % 2 == 0 ? 1 : -1), root(modulo(rank - turn * node, ranks)) {}
  int rank_of(int node) const { return modulo(root + turn * node, size); }
  int lowest_rank(const BineTree::Nodes& nodes) const {
    return lowest(rank_of(turn > 0 ? nodes.first : nodes.last), nodes.count(), size);
  }
  int size, turn, root;  // turn: -1 if the tree is mirrored; root: a rank
};

// Returns the block of each root. Blocks are in the order of rank 0's paths in their trees. Then a
// message's blocks are adjacent if p is a power of two, and form a few pieces otherwise.
std::vector<int> blocks_of(const BineTree& tree) {
  const int size = tree.nodes().count();
  std::vector<int> roots(std::size_t{1} << tree.steps(), -1), blocks(static_cast<std::size_t>(size));
  for (int node = tree.nodes().first; node <= tree.nodes().last; ++node) {
    roots[tree.path(node)] = BlockTree(0, node, size).root;
  }
  int next = 0;
  for (const int root : roots) {
    if (root >= 0) blocks[static_cast<std::size_t>(root)] = next++;
  }
  return blocks;
}

// Calls visit(node, parent, step) for every node except the root.
template <class Visit>
void each_edge(const BineTree& tree, const Visit& visit) {
  for (int node = tree.nodes().first; node <= tree.nodes().last; ++node) {
    if (node == 0) continue;
    const int step = tree.level(node);
    visit(node, BineTree::mate(node, step), step);
  }
}

// Sorts the steps from a round on: sends first, then by block.
void sort_blocks(Schedule& s, std::size_t from) {
  const auto key = [](const Step& step) { return std::pair(receives(step.kind), step.block); };
  for (; from < s.rounds.size(); ++from) std::ranges::sort(s.rounds[from], {}, key);
}

}  // namespace

BineTree::BineTree(int size) : steps_(ceil_log2(size)) {
  const int all = (1 << steps_) - 1, cut = all + 1 - size;
  nodes_ = {(cut & kEvenBits) - (all & kOddBits), (all & kEvenBits) - (cut & kOddBits)};
}

int BineTree::mate(int node, int step) {
  const int power = 1 << (step + 1), distance = step % 2 == 0 ? (power + 1) / 3 : -(power - 1) / 3;
  return node % 2 == 0 ? node + distance : node - distance;
}

BineTree::Nodes BineTree::below(int node, int step) const {
  const int all = (1 << step) - 1, down = all & kOddBits, up = all & kEvenBits;
  const bool even = node % 2 == 0;
  return {std::max(nodes_.first, node - (even ? down : up)), std::min(nodes_.last, node + (even ? up : down))};
}

unsigned BineTree::path(int node) const {
  unsigned path = 0;
  for (int step = steps_ - 1, ancestor = 0; ancestor != node; --step) {
    if (below(ancestor, step).contain(node)) continue;
    ancestor = mate(ancestor, step);
    path |= 1U << (steps_ - 1 - step);
  }
  return path;
}

void bine_broadcast(Schedule& s) {
  const BineTree tree(s.size);
  const int node = tree.node_at(modulo(s.rank - s.root, s.size)), level = tree.level(node);
  const auto rank_of = [&](int other) { return modulo(s.root + other, s.size); };
  const std::size_t at = extend(s, tree.steps());
  const auto round_of = [&](int step) -> Round& {
    return s.rounds[at + static_cast<std::size_t>(tree.steps() - 1 - step)];
  };
  if (node != 0) round_of(level) = {receive(rank_of(BineTree::mate(node, level)), 0)};
  for (int step = 0; step < level; ++step) {
    const int child = BineTree::mate(node, step);
    if (tree.nodes().contain(child)) round_of(step) = {send(rank_of(child), 0)};
  }
}

void bine_reduce(Schedule& s) {
  const BineTree tree(s.size);
  const int node = tree.node_at(modulo(s.rank - s.root, s.size)), level = tree.level(node);
  const auto rank_of = [&](int other) { return modulo(s.root + other, s.size); };
  const auto lowest_rank = [&](const BineTree::Nodes& nodes) {
    return lowest(rank_of(nodes.first), nodes.count(), s.size);
  };
  const std::size_t at = extend(s, tree.steps());
  for (int step = 0; step < level; ++step) {
    const int child = BineTree::mate(node, step);
    if (!tree.nodes().contain(child)) continue;
    const bool first = lowest_rank(tree.below(child, step)) < lowest_rank(tree.below(node, step));
    s.rounds[at + static_cast<std::size_t>(step)] = {reduce(rank_of(child), 0, first)};
  }
  if (node != 0) s.rounds[at + static_cast<std::size_t>(level)] = {send(rank_of(BineTree::mate(node, level)), 0)};
}

void bine_share_reduce(Schedule& s) {
  const BineTree tree(s.size);
  const std::vector<int> blocks = blocks_of(tree);
  const std::size_t at = extend(s, tree.steps());
  each_edge(tree, [&](int node, int parent, int step) {
    Round& round = s.rounds[at + static_cast<std::size_t>(step)];
    const BlockTree away(s.rank, node, s.size), kept(s.rank, parent, s.size);
    const bool first = kept.lowest_rank(tree.below(node, step)) < kept.lowest_rank(tree.below(parent, step));
    round.push_back(send(away.rank_of(parent), blocks[static_cast<std::size_t>(away.root)]));
    round.push_back(reduce(kept.rank_of(node), blocks[static_cast<std::size_t>(kept.root)], first));
  });
  sort_blocks(s, at);
}

void bine_share_only(Schedule& s) {
  const BineTree tree(s.size);
  const std::vector<int> blocks = blocks_of(tree);
  const std::size_t at = extend(s, tree.steps());
  each_edge(tree, [&](int node, int parent, int step) {
    Round& round = s.rounds[at + static_cast<std::size_t>(tree.steps() - 1 - step)];
    const BlockTree held(s.rank, parent, s.size), lacked(s.rank, node, s.size);
    round.push_back(send(held.rank_of(node), blocks[static_cast<std::size_t>(held.root)]));
    round.push_back(receive(lacked.rank_of(parent), blocks[static_cast<std::size_t>(lacked.root)]));
  });
  sort_blocks(s, at);
}

}  // namespace ringcomm::schedules
