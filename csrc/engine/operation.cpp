#include "engine/operation.hpp"

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "engine/worker.hpp"

namespace ringcomm {

bool Operation::wait(double seconds) {
  if (done()) return true;
  std::unique_lock lock(mutex_);
  const auto over = [this] { return done_.load(std::memory_order_relaxed); };
  if (seconds < 0) {
    finished_.wait(lock, over);
    return true;
  }
  // Longer than a year is cut, for a duration in nanoseconds must fit.
  return finished_.wait_for(lock, std::chrono::duration<double>(std::min(seconds, 3e7)), over);
}

void Operation::finish(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (done_.load(std::memory_order_relaxed)) return;
  error_ = std::move(error);
  done_.store(true, std::memory_order_release);
  finished_.notify_all();  // under the lock: a waiter may destroy this as soon as it sees done
}

void Operation::renew() {
  const std::lock_guard lock(mutex_);  // of whoever finished it before
  output.reset();
  output_bytes = 0;
  counts.clear();
  last_joined = -1;
  error_ = nullptr;
  done_.store(false, std::memory_order_relaxed);
}

bool wait_for(Operation& operation, Worker& worker, double seconds, bool (*interrupted)()) {
  constexpr double kAsk = 0.05;  // seconds between two questions whether Ctrl-C was pressed
  const std::int64_t start = now_ns();
  std::int64_t asked = start;
  Backoff backoff(std::chrono::microseconds(100));
  for (;;) {
    if (operation.done()) return true;
    const std::int64_t now = now_ns();
    const double left = seconds < 0 ? kAsk : seconds - static_cast<double>(now - start) * 1e-9;
    if (left <= 0) return false;
    if (interrupted && now - asked >= static_cast<std::int64_t>(kAsk * 1e9)) {
      asked = now;
      if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted while waiting for '" + operation.name + "'");
    }
    if (worker.threaded()) {
      const double longest = std::min(left, kAsk);
      const auto over = [&] { return operation.done(); };
      if (!worker.assist(over, std::chrono::nanoseconds(static_cast<std::int64_t>(longest * 1e9)))) operation.wait(longest);
    } else if (worker.help()) {
      backoff.reset();
    } else {
      backoff.pause();
    }
  }
}

}  // namespace ringcomm
