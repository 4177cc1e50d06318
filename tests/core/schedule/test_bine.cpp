// Tests Bine trees, and the all-reduce that is also Swing: against the papers' formulas for
// distances, rounds, messages and blocks, and for sizes that the papers leave open.
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "check.hpp"
#include "schedule/bine.hpp"
#include "schedule_simulator.hpp"

using namespace ringcomm;
using schedules::BineTree;
using simulation::all_ranks;

namespace {

// Returns the sum of (-2)^i for i = 0..step, by which Swing defines the distance.
int swing_distance(int step) {
  int sum = 0;
  for (int i = 0, term = 1; i <= step; ++i, term *= -2) sum += term;
  return sum;
}

int along_the_ring(int from, int to, int p) {
  const int ahead = schedules::modulo(to - from, p);
  return std::min(ahead, p - ahead);
}

void trees_keep_every_parent() {
  for (int p = 1; p <= 1100; ++p) {
    const BineTree tree(p);
    const BineTree::Nodes nodes = tree.nodes();
    CHECK(nodes.count() == p && nodes.contain(0) && tree.level(0) == tree.steps());
    CHECK(tree.below(0, tree.steps()).first == nodes.first && tree.below(0, tree.steps()).last == nodes.last);
    std::map<int, int> descendants;
    for (int offset = 0; offset < p; ++offset) {
      const int node = tree.node_at(offset);
      CHECK(nodes.contain(node) && schedules::modulo(node, p) == offset);
      for (int up = node; up != 0;) {  // the path to the root
        const int level = tree.level(up), parent = BineTree::mate(up, level);
        CHECK(std::abs(parent - up) == std::abs(swing_distance(level)) && BineTree::mate(parent, level) == up);
        CHECK(nodes.contain(parent) && tree.level(parent) > level);
        up = parent;
        ++descendants[up];
      }
    }
    for (int node = nodes.first; node <= nodes.last; ++node)
      CHECK(tree.below(node, tree.level(node)).count() == 1 + descendants[node]);
    for (int step = 0; step < tree.steps(); ++step) CHECK(nodes.contain(BineTree::mate(0, step)));
  }
}

// Checks that every message covers its round's distance, in halving, doubling, and trees.
void distances_are_swings() {
  for (int p = 2; p <= 130; ++p) {
    int steps = 0;
    while ((1 << steps) < p) ++steps;
    for (const Algorithm& a : algorithms()) {
      const bool doubling = a.name == "bine_doubling", halving = a.name == "bine_halving";
      if (!a.name.starts_with("bine") || (doubling && (1 << steps) != p)) continue;
      for (const Schedule& s : all_ranks(a, p, a.rooted() ? p / 3 : 0)) {
        for (std::size_t k = 0; k < s.rounds.size(); ++k) {
          const int round = static_cast<int>(k), last = 2 * steps - 1;
          const bool rises = a.collective == Collective::reduce || halving;
          const int step = !rises ? steps - 1 - round : round < steps ? round : last - round;
          for (const Step& it : s.rounds[k]) {
            const bool mirrored = !a.rooted() && p % 2 == 0 && s.rank % 2 == 1;
            const int ahead = schedules::modulo(mirrored ? s.rank - it.peer : it.peer - s.rank, p);
            const int d = schedules::modulo(swing_distance(step), p);
            CHECK(ahead == d || ((a.rooted() || p % 2 == 1) && ahead == p - d));
          }
        }
      }
    }
  }
}

// Checks that a rank sends every block but one exactly once in the first half. In the second it
// sends only that block and blocks that it received. If p is a power of two, the messages have p/2,
// p/4, ..., 1 blocks, which are adjacent.
void halving_sends_each_block_once() {
  for (int p = 2; p <= 130; ++p) {
    std::set<int> owned;
    for (const Schedule& s : all_ranks(*find_algorithm(Collective::allreduce, "swing"), p)) {
      const std::size_t half = s.rounds.size() / 2;
      std::set<int> sent, has;
      for (int block = 0; block < p; ++block) has.insert(block);
      for (std::size_t k = 0; k < s.rounds.size(); ++k) {
        std::set<int> peers, blocks;
        for (const Step& it : s.rounds[k]) {
          if (it.kind == StepKind::send) {
            peers.insert(it.peer);
            CHECK(blocks.insert(it.block).second && has.count(it.block) == 1);
            if (k < half) CHECK(sent.insert(it.block).second);
          } else if (k >= half) {
            CHECK(it.kind == StepKind::receive && has.insert(it.block).second);
          }
        }
        if (k < half) {
          for (const int block : blocks) has.erase(block);
        }
        if (k + 1 == half) {
          CHECK(has.size() == 1);
          owned.insert(has.begin(), has.end());
        }
        CHECK(static_cast<int>(peers.size()) <= (p % 2 == 0 ? 1 : 2));
        if ((p & (p - 1)) != 0) continue;
        const int count = k < half ? p >> (k + 1) : 1 << (k - half);
        CHECK(static_cast<int>(blocks.size()) == count && *blocks.rbegin() - *blocks.begin() == count - 1);
      }
      CHECK(static_cast<int>(sent.size()) == p - 1 && static_cast<int>(has.size()) == p);
    }
    CHECK(static_cast<int>(owned.size()) == p);
  }
}

// Checks how many links of a ring all messages of a tree use together. For powers of two this is
// two thirds of a binomial tree's, plus a term that falls with the depth. For other sizes it is
// never more than a binomial tree's.
void trees_use_fewer_links() {
  for (int p = 2; p <= 1024; p = p < 128 ? p + 1 : 2 * p) {
    const auto links = [&](const char* name) {
      int sum = 0;
      for (const Schedule& s : all_ranks(*find_algorithm(Collective::broadcast, name), p)) {
        for (const Round& round : s.rounds) {
          for (const Step& it : round) {
            if (it.kind == StepKind::send) sum += along_the_ring(s.rank, it.peer, p);
          }
        }
      }
      return sum;
    };
    const double ratio = static_cast<double>(links("bine")) / links("binomial");
    CHECK(ratio <= 1);
    if ((p & (p - 1)) != 0) continue;
    const int depth = BineTree(p).steps();
    CHECK(std::abs(ratio - 2.0 / 3 - 2.0 / 9 * (1 - std::pow(-0.5, depth)) / depth) < 1e-9);
  }
}

}  // namespace

int main() {
  trees_keep_every_parent();
  distances_are_swings();
  halving_sends_each_block_once();
  trees_use_fewer_links();
  std::puts("Bine trees: passed");
}
