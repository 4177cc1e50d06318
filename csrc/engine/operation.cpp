// Implements waiting for an Operation, and finishing it.
#include "engine/operation.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace ringcomm {

namespace {

// A place where threads wait. A few of these serve all operations, so that operations stay small,
// and a thread that finishes many operations uses few locks.
struct Waiting {
  std::mutex mutex;
  std::condition_variable finished;
};

Waiting& waiting_for(const Operation* operation) {
  constexpr std::size_t kStripes = 16, kStride = 1024;
  static auto& stripes = *new std::array<Waiting, kStripes>;  // threads may wait while the process ends
  return stripes[reinterpret_cast<std::uintptr_t>(operation) / kStride % kStripes];
}

}  // namespace

bool Operation::wait(double seconds) {
  if (done()) return true;
  Waiting& room = waiting_for(this);
  std::unique_lock lock(room.mutex);
  const auto over = [this] { return done_.load(std::memory_order_acquire); };
  if (seconds < 0) {
    room.finished.wait(lock, over);
    return true;
  }
  // Limits the time to about a year, because a duration in nanoseconds must fit.
  return room.finished.wait_for(lock, std::chrono::duration<double>(std::min(seconds, 3e7)), over);
}

// A waiter may destroy the operation as soon as it reads done_.
void Operation::finish(std::exception_ptr error) {
  Waiting& room = waiting_for(this);
  const std::lock_guard lock(room.mutex);
  if (done_.load(std::memory_order_relaxed)) return;
  error_ = std::move(error);
  done_.store(true, std::memory_order_release);
  room.finished.notify_all();
}

void Operation::renew() {
  static_cast<Received&>(*this) = {};
  last_joined = -1;
  entry.reset();
  error_ = nullptr;
  done_.store(false, std::memory_order_relaxed);
}

}  // namespace ringcomm
