// Which of two ways is the faster one on this machine, found by taking both: machines differ by factors, and in either
// direction.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace ringcomm {

// Some calls of one kind go the first way, some the second, once more so, and then all the way that takes less; now and
// then the other one is tried again. Each time it is a few calls in a row, for it takes some until the caches hold what
// they need; and the first ones find memory that nobody has touched. All ranks take the same way: each tells the others
// what its own calls have taken, in the notes that a call carries anyway, and what it hears, which all hear alike,
// decides the next call's way.
class PathTuner {
 public:
  using Times = std::array<float, 2>;  // by way; 0: not known yet

  // The second way is taken where it is so many times faster.
  explicit PathTuner(float times = 1) : times_(times) {}

  // Whether the next call goes the second way.
  bool use_second(std::size_t kind) const {
    const auto found = kinds_.find(kind);
    if (found == kinds_.end()) return false;
    const Kind& one = found->second;
    const std::uint64_t turn = one.calls / kTurn;
    if (turn < kTurns) return turn % 2 == 1;
    const std::uint64_t since = turn - kTurns;
    const bool soon = since == 4 || since == 16;
    return one.better != (soon || turn % again(one.slowest) == 0);
  }
  Times report(std::size_t kind) { return kinds_[kind].mine; }
  // Once in every call: each way's largest time of all that ranks have told.
  void merge(std::size_t kind, const Times& slowest) {
    Kind& one = kinds_[kind];
    one.slowest = slowest;
    ++one.calls;
    const bool better = slowest[1] * times_ < slowest[0];
    // A change of mind is looked into soon: it may come of calls that were held up.
    if (better != std::exchange(one.better, better)) one.calls = std::min(one.calls, kTurns * kTurn);
  }
  // A call of this rank took so long, for each byte.
  void record(std::size_t kind, bool use_second, double time) {
    Kind& one = kinds_[kind];
    Last& last = one.last[use_second ? 1 : 0];
    last.times[last.number++ % kLast] = static_cast<float>(time);
    one.mine[use_second ? 1 : 0] = last.median();
  }

 private:
  // Calls in a row; and the last ones, of which the median counts, for some are held up, by others or by the system.
  static constexpr std::size_t kTurn = 5, kLast = 9;
  static constexpr std::uint64_t kTurns = 4;
  static constexpr float kAgain = 64, kMost = 2;

  // The more is lost by taking the other way, the more seldom it is taken.
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
    bool better = false;  // the second way
    std::array<Last, 2> last{};
  };
  float times_;
  std::unordered_map<std::size_t, Kind> kinds_;
};

}  // namespace ringcomm
