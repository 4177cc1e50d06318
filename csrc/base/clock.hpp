// Provides the clock, and Backoff, the policy of waiting loops: spin, yield or sleep between polls.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace ringcomm {

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// A rate limiter: at() returns true at most once in `ns` nanoseconds.
class Every {
 public:
  explicit Every(std::int64_t ns, std::int64_t since = 0) : ns_(ns), last_(since) {}
  bool at(std::int64_t now) {
    if (now - last_ < ns_) return false;
    last_ = now;
    return true;
  }

 private:
  std::int64_t ns_, last_;
};

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Time for which a wait for other hosts polls before it sleeps, in ns.
inline constexpr std::int64_t kYieldBetweenHosts = 300'000;

// A wait policy: spin, then yield, then sleep for longer and longer. If ranks share cores, the
// yields give the core to the rank that is waited for. MPI cannot wake a sleeper, so a wait for
// messages ends up polling every `longest_sleep`.
class Backoff {
 public:
  // `part`: a sleeper wakes late by at most 1/`part` of the time that it has slept. The value 1
  // doubles the sleeps; a larger value polls more often.
  explicit Backoff(std::chrono::nanoseconds longest_sleep, int spins = 64, int yields = 64, int part = 1)
      : longest_(longest_sleep), spins_(spins), yields_(yields), part_(part) {}
  // Sets minimum times for spinning and yielding. Most waits between ranks of one host are shorter
  // than the time in which a sleeper wakes up.
  // A yield may give a time slice to another process, so a rank that has a core to itself spins. If
  // another process took the core, the wait sleeps: when the peer wakes the sleeper, the scheduler
  // runs it before that process.
  // If `spin_ns` is 0, ranks share cores, and the awaited rank may need this core: polls only a few
  // times before it yields.
  void insist(std::int64_t spin_ns, std::int64_t yield_ns) {
    timed_ = true;
    if (spin_ns == 0) spins_ = std::min(spins_, kFewLooks);
    spin_ns_ = spin_ns;
    yield_ns_ = yield_ns;
  }
  // Yields from the first poll on, for at least `yield_ns`. Use it in waits for other hosts. Their
  // answers take so long that the other ranks of this core can run in the meantime, and an answer
  // may depend on these ranks.
  void yield_immediately(std::int64_t yield_ns) {
    spins_ = 0;
    insist(0, yield_ns);
  }
  bool lost_core() const { return lost_core_; }
  void reset() {
    looks_ = 0;
    napped_ = std::chrono::nanoseconds{0};
  }
  // Returns how long the caller should sleep now. Returns zero after it has spun or yielded itself.
  std::chrono::nanoseconds next() {
    if (looks_ == 0 && timed_) began_ = seen_ = now_ns();
    if (lost_core_) return nap();
    if (looks_ < spins_ || within(looks_ == spins_, spin_ns_)) {
      if (looks_ < spins_) ++looks_;
      cpu_relax();
      return std::chrono::nanoseconds{0};
    }
    if (looks_ < spins_ + yields_ || within(looks_ == spins_ + yields_, spin_ns_ + yield_ns_)) {
      if (looks_ < spins_ + yields_) ++looks_;
      std::this_thread::yield();
      return std::chrono::nanoseconds{0};
    }
    return nap();
  }
  void pause() {
    if (const auto sleep = next(); sleep.count() > 0) std::this_thread::sleep_for(sleep);
  }

 private:
  static constexpr int kFewLooks = 8;              // these polls take as long as one yield
  static constexpr std::int64_t kSlice = 300'000;  // ns; more time between two polls: another process ran

  bool within(bool phase_ends, std::int64_t ns) {
    if (!phase_ends || !timed_) return false;
    const std::int64_t now = now_ns();
    lost_core_ = spin_ns_ > 0 && now - seen_ > kSlice;
    seen_ = now;
    return !lost_core_ && now - began_ < ns;
  }
  std::chrono::nanoseconds nap() {
    const auto nap = std::min(longest_, std::max(napped_ / part_, std::chrono::nanoseconds{2000}));
    napped_ += nap;
    return nap;
  }

  std::chrono::nanoseconds longest_, napped_{0};
  int spins_, yields_, part_, looks_ = 0;
  bool timed_ = false, lost_core_ = false;
  std::int64_t spin_ns_ = 0, yield_ns_ = 0, began_ = 0, seen_ = 0;
};

}  // namespace ringcomm
