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
// It alternates both paths for two batches of calls, or for four if their times are close. It then
// uses the faster path, and retries the other occasionally.
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
    if (turn < kTurns && !(turn >= 2 && ratio(statistics.slowest) > kClear)) return turn % 2 == 1;
    const bool soon = turn == kTurns + 4 || turn == kTurns + 16;
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
  static constexpr float kAgain = 64, kMost = 2, kClear = 1.4F;

  // Returns the number of batches between retries of the slower path, which grows with the time
  // that a retry loses.
  static std::uint64_t again(const Times& slowest) {
    const float times = std::min(ratio(slowest), kMost);
    return static_cast<std::uint64_t>(kAgain * times * times);
  }
  // Returns the slower path's time divided by the faster one's; 1 if a time is unknown.
  static float ratio(const Times& slowest) {
    const auto [less, more] = std::minmax(slowest[0], slowest[1]);
    return less > 0 ? more / less : 1;
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
