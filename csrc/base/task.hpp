// Whatever moves bytes is a task. Nothing in advance() waits, so one worker can run many.
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
  virtual std::string_view label() const { return {}; }  // for messages about what does not go on
  virtual void abandon() noexcept {}  // after an error: give up what is under way so that buffers may go
  // Sleeps at most so long, less if what blocks the task happens. For a thread that has nothing else to do.
  virtual void nap(std::chrono::nanoseconds longest) { std::this_thread::sleep_for(longest); }
};

class Finished final : public Task {
 public:
  Progress advance() override { return Progress::done; }
};

}  // namespace ringcomm
