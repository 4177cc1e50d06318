// Contains the library's waiting loop, for threads that poll for an event which does not wake them.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/task.hpp"

namespace ringcomm {

inline constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();  // a deadline, in now_ns()'s time

// Polls `look` until it returns `done`, and returns true; returns false once `deadline_ns` has
// passed. After `moved` it polls again immediately and resets `backoff`. After `blocked`, `backoff`
// spins, yields, or returns a duration; then `sleep` is called with that duration, which is the
// longest permitted.
template <class Look, class Sleep>
bool wait_until(Look&& look, Backoff& backoff, std::int64_t deadline_ns, Sleep&& sleep) {
  for (;;) {
    const Progress progress = look();
    if (progress == Progress::done) return true;
    if (deadline_ns != kForEver && now_ns() >= deadline_ns) return false;
    if (progress == Progress::moved) {
      backoff.reset();
    } else if (const std::chrono::nanoseconds longest = backoff.next(); longest.count() > 0) {
      sleep(longest);
    }
  }
}

template <class Look>
bool wait_until(Look&& look, Backoff& backoff, std::int64_t deadline_ns = kForEver) {
  return wait_until(std::forward<Look>(look), backoff, deadline_ns,
                    [](std::chrono::nanoseconds longest) { std::this_thread::sleep_for(longest); });
}

}  // namespace ringcomm
