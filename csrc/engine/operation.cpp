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

// Where threads wait. A few serve all operations: operations stay small, and a thread that finishes
// many of them touches one lock.
struct Waiting {
  std::mutex mutex;
  std::condition_variable finished;
};

Waiting& waiting_for(const Operation* operation) {
  constexpr std::size_t kRooms = 16, kApart = 1024;
  static auto& rooms = *new std::array<Waiting, kRooms>;  // threads may wait while the process ends
  return rooms[reinterpret_cast<std::uintptr_t>(operation) / kApart % kRooms];
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

// A waiter may destroy this as soon as it sees done.
void Operation::finish(std::exception_ptr error) {
  Waiting& room = waiting_for(this);
  const std::lock_guard lock(room.mutex);
  if (done_.load(std::memory_order_relaxed)) return;
  error_ = std::move(error);
  done_.store(true, std::memory_order_release);
  room.finished.notify_all();
}

void Operation::renew() {
  output.reset();
  output_bytes = 0;
  counts.clear();
  last_joined = -1;
  entry.reset();
  error_ = nullptr;
  done_.store(false, std::memory_order_relaxed);
}

}  // namespace ringcomm
