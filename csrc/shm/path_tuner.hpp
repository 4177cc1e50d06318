// Finds the faster of two paths by measuring both, because the ratio of their times differs widely
// between machines.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace ringcomm {

// Chooses between two paths for calls of the same kind (an integer key, for example of the size).
// It alternates both paths for four batches of calls, then uses the faster one, and retries the
// other occasionally.
// A batch is several calls in a row, because caches need some calls to fill, and the first calls
// touch new pages. All ranks use the same path: every call carries the times of each rank, and all
// ranks decide from the same slowest times.
class PathTuner {
 public:
  using Times = std::array<float, 2>;  // per path, per byte; 0: unknown

  // The second path is used if it is `times` times faster than the first.
  explicit PathTuner(float times = 1) : times_(times) {}

  // Returns whether the next call uses the second path.
  bool use_second(std::size_t kind) const {
    const auto found = kinds_.find(kind);
    if (found == kinds_.end()) return false;
    const Kind& statistics = found->second;
    const std::uint64_t turn = statistics.calls / kTurn;
    if (turn < kTurns) return turn % 2 == 1;
    const std::uint64_t since = turn - kTurns;
    const bool soon = since == 4 || since == 16;
    return statistics.better != (soon || turn % again(statistics.slowest) == 0);
  }
  Times report(std::size_t kind) { return kinds_[kind].mine; }
  // Called once per call, with each path's largest time over all ranks.
  void merge(std::size_t kind, const Times& slowest) {
    Kind& statistics = kinds_[kind];
    statistics.slowest = slowest;
    ++statistics.calls;
    const bool better = slowest[1] * times_ < slowest[0];
    // A changed decision is tested again soon: delayed calls may have caused it.
    if (better != std::exchange(statistics.better, better))
      statistics.calls = std::min(statistics.calls, kTurns * kTurn);
  }
  // Records the time per byte of one call of this rank.
  void record(std::size_t kind, bool use_second, double time) {
    Kind& statistics = kinds_[kind];
    Last& last = statistics.last[use_second ? 1 : 0];
    last.times[last.number++ % kLast] = static_cast<float>(time);
    statistics.mine[use_second ? 1 : 0] = last.median();
  }

 private:
  // Calls per batch; number of recent calls of which the median time is used. The median ignores
  // calls that other processes or the system delayed.
  static constexpr std::size_t kTurn = 5, kLast = 9;
  static constexpr std::uint64_t kTurns = 4;
  static constexpr float kAgain = 64, kMost = 2;

  // Returns the number of batches between retries of the slower path, which grows with the time
  // that a retry loses.
  static std::uint64_t again(const Times& slowest) {
    const auto [less, more] = std::minmax(slowest[0], slowest[1]);
    const float times = less > 0 ? std::min(more / less, kMost) : 1;
    return static_cast<std::uint64_t>(kAgain * times * times);
  }

  struct Last {
    std::array<float, kLast> times{};
    std::size_t number = 0;
    float median() const {
      auto sorted = times;
      const auto end = sorted.begin() + std::min(number, kLast), middle = sorted.begin() + (end - sorted.begin()) / 2;
      std::nth_element(sorted.begin(), middle, end);
      return *middle;
    }
  };
  struct Kind {
    Times mine{}, slowest{};
    std::uint64_t calls = 0;
    bool better = false;  // the second path
    std::array<Last, 2> last{};
  };
  float times_;
  std::unordered_map<std::size_t, Kind> kinds_;
};

}  // namespace ringcomm
