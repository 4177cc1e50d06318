// Defines the task: an operation that moves bytes, advanced step by step. advance() never blocks,
// so one worker runs many tasks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>

namespace ringcomm {

enum class Progress : std::uint8_t { blocked, moved, done };

class Task {
 public:
  virtual ~Task() = default;
  virtual Progress advance() = 0;                        // throws Error
  virtual bool brief() const { return false; }           // advance() takes at most some microseconds
  virtual std::string_view label() const { return {}; }  // name of the operation, for messages about stalls
  virtual void abandon() noexcept {}  // after an error: cancels operations in flight, so that buffers may be freed
  // Sleeps at most `longest`, less if the task can advance. Only for a thread without other work.
  virtual void nap(std::chrono::nanoseconds longest) { std::this_thread::sleep_for(longest); }
};

class Finished final : public Task {
 public:
  Progress advance() override { return Progress::done; }
  bool brief() const override { return true; }
};

}  // namespace ringcomm
