// Time, and what a waiting loop does between two looks.
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

// Lets its owner do something at most once in so many nanoseconds.
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

inline constexpr std::int64_t kYieldBetweenHosts = 300'000;  // ns of waiting for other hosts before sleeping

// Spin, then yield, then sleep, for longer and longer. With more ranks than cores the yields hand the core to the
// rank we wait for; MPI cannot wake anybody, so a wait on messages ends up polling with `longest_sleep` between looks.
class Backoff {
 public:
  // `part`: who sleeps comes late by one such part of its wait at most. 1 doubles its sleeps; more looks more often.
  explicit Backoff(std::chrono::nanoseconds longest_sleep, int spins = 64, int yields = 64, int part = 1)
      : longest_(longest_sleep), spins_(spins), yields_(yields), part_(part) {}
  // Waits of one host's ranks for each other are short, and waking a sleeper takes longer than most; so spin and yield
  // for so long at least. A yield may cost a time slice to a stranger: spin as long as every rank has a core, and once
  // a stranger has had this one, sleep: who sleeps is woken by whom it waits for, and is then the first to run. Where
  // ranks share cores (no time to spin), whoever is waited for may need this one: a few looks.
  void insist(std::int64_t spin_ns, std::int64_t yield_ns) {
    timed_ = true;
    if (spin_ns == 0) spins_ = std::min(spins_, kFewLooks);
    spin_ns_ = spin_ns;
    yield_ns_ = yield_ns;
  }
  // Waits for other hosts: an answer takes longer than others of this core need for their turns, of whom one may be
  // asked for the answer; so yield from the first look on, and for so long at least.
  void yield_at_once(std::int64_t yield_ns) {
    spins_ = 0;
    insist(0, yield_ns);
  }
  bool lost_core() const { return lost_core_; }
  void reset() {
    looks_ = 0;
    napped_ = std::chrono::nanoseconds{0};
  }
  // How long the caller should sleep now; zero while spinning or yielding (then it has been done here).
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
  static constexpr int kFewLooks = 8;              // a yield takes as long
  static constexpr std::int64_t kSlice = 300'000;  // ns between two looks: somebody else has run

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
