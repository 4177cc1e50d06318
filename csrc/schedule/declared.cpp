// Checks the declarations of schedules against their rounds: symmetry, busiest ranks and lag.
// prove() calls it last.
#include "schedule/declared.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "schedule/symbolic_run.hpp"

namespace ringcomm {
namespace {

// ---- symmetry

// Work of a round, independent of the rank: blocks per relative peer and direction (true:
// received), and the number of reductions under {-1, true}.
using Shape = std::map<std::pair<int, bool>, int>;

// Returns rank 0's peer that corresponds to a peer of this rank; symmetric_peer() is the inverse.
int peer_of_first(const Schedule& s, int peer) {
  if (s.symmetry == Symmetry::exclusive_or) return peer ^ s.rank;
  const bool mirrored = s.symmetry == Symmetry::reflection && s.rank % 2 == 1;
  return ((mirrored ? s.rank - peer : peer - s.rank) + s.size) % s.size;
}

Shape shape_of(const Schedule& s, std::size_t k) {
  Shape shape;
  if (k >= s.rounds.size()) return shape;
  for (const Step& step : s.rounds[k]) {
    if (computes(step.kind)) ++shape[{-1, true}];
    if (is_local(step.kind)) continue;
    ++shape[{peer_of_first(s, step.peer), receives(step.kind)}];
  }
  return shape;
}

std::size_t rounds_of(const std::vector<Schedule>& schedules) {
  std::size_t rounds = 0;
  for (const Schedule& s : schedules) rounds = std::max(rounds, s.rounds.size());
  return rounds;
}

std::string false_symmetry(const std::vector<Schedule>& schedules) {
  if (schedules.front().symmetry == Symmetry::none) return {};
  for (std::size_t k = 0; k < rounds_of(schedules); ++k) {
    const Shape first = shape_of(schedules.front(), k);
    for (std::size_t r = 1; r < schedules.size(); ++r) {
      if (shape_of(schedules[r], k) != first) {
        return moment_of(r, k) + ": differs from rank 0's round, which the declared symmetry does not allow";
      }
    }
  }
  return {};
}

// ---- busiest ranks

struct Effort {
  std::size_t messages = 0, blocks = 0, reduced = 0;  // messages and blocks of the busier direction
};

Effort effort_of(const Schedule& s, std::size_t k) {
  Effort effort;
  if (k >= s.rounds.size()) return effort;
  std::map<int, int> to, from;
  for (const Step& step : s.rounds[k]) {
    effort.reduced += computes(step.kind);
    if (!is_local(step.kind)) ++(receives(step.kind) ? from : to)[step.peer];
  }
  const auto blocks = [](const std::map<int, int>& peers) {
    std::size_t all = 0;
    for (const auto& [peer, count] : peers) all += static_cast<std::size_t>(count);
    return all;
  };
  effort.messages = std::max(to.size(), from.size());
  effort.blocks = std::max(blocks(to), blocks(from));
  return effort;
}

std::string busier_than_the_busiest(const std::vector<Schedule>& schedules) {
  const std::vector<int>& busiest = schedules.front().busiest;
  if (busiest.empty()) return {};
  for (std::size_t k = 0; k < rounds_of(schedules); ++k) {
    std::vector<Effort> most;
    for (const int rank : busiest) most.push_back(effort_of(schedules[static_cast<std::size_t>(rank)], k));
    for (std::size_t r = 0; r < schedules.size(); ++r) {
      const Effort it = effort_of(schedules[r], k);
      const bool covered = std::any_of(most.begin(), most.end(), [&](const Effort& m) {
        return it.messages <= m.messages && it.blocks <= m.blocks && it.reduced <= m.reduced;
      });
      if (!covered) return moment_of(r, k) + ": has more work than the ranks that are declared as busiest";
    }
  }
  return {};
}

// ---- how far ranks fall behind

std::string false_lag(const std::vector<Schedule>& schedules) {
  const int declared = schedules.front().lag;
  if (declared == 0) return {};
  std::vector<int> behind(schedules.size());  // messages on the longest path to each rank
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    for (std::size_t k = 0; k < schedules[r].rounds.size(); ++k) {
      for (const Step& step : schedules[r].rounds[k]) {
        if (is_local(step.kind) || receives(step.kind)) continue;
        const auto to = static_cast<std::size_t>(step.peer);
        if (to < r) return moment_of(r, k) + ": sends to a lower rank, which the declared lag does not allow";
        behind[to] = std::max(behind[to], behind[r] + 1);
      }
    }
  }
  const int most = *std::max_element(behind.begin(), behind.end());
  if (most == declared) return {};
  return concat("ranks lag by ", most, " messages, but the declared lag is ", declared);
}

}  // namespace

std::string wrongly_declared(const std::vector<Schedule>& schedules) {
  for (const auto check : {false_symmetry, busier_than_the_busiest, false_lag}) {
    if (std::string why = check(schedules); !why.empty()) return why;
  }
  return {};
}

}  // namespace ringcomm
