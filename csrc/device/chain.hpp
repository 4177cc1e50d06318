// Defines a task that runs a chain of steps, which are member functions. Before each step it may
// wait for another task or for an event. Calls on devices are chains.
#pragma once

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "base/short_sleeps.hpp"
#include "base/task.hpp"
#include "device/device.hpp"

namespace ringcomm {

class Chain : public Task {
 public:
  ~Chain() override { Chain::abandon(); }

  Progress advance() override {
    if (task_) {
      const Progress progress = task_->advance();
      if (progress != Progress::done) return progress;
      task_.reset();
    }
    if (!event_.happened()) return Progress::blocked;
    event_ = Event();
    const Progress progress = next_ ? (this->*next_)() : Progress::done;
    if (progress == Progress::done) next_ = nullptr;
    return progress;
  }
  void abandon() noexcept override {
    if (task_) task_->abandon();
    task_.reset();
    next_ = nullptr;
  }
  void nap(std::chrono::nanoseconds longest) override {
    if (task_) return task_->nap(longest);
    if (event_.empty()) return Task::nap(longest);
    const ShortSleeps precise;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(longest, kEventNap));
  }

 protected:
  // Sets the next step: a member function of the derived class. It is called again until it is not
  // blocked.
  template <class Mine>
  Progress then(Progress (Mine::*next)()) {
    next_ = static_cast<Next>(next);
    return Progress::moved;
  }
  // Sets the next step, to be called after a task has ended (null: immediately) or an event has
  // happened.
  template <class Mine>
  Progress after(std::unique_ptr<Task> task, Progress (Mine::*next)()) {
    task_ = std::move(task);
    return then(next);
  }
  template <class Mine>
  Progress after(Event event, Progress (Mine::*next)()) {
    event_ = std::move(event);
    return then(next);
  }
  Progress end_with(std::unique_ptr<Task> task) {
    task_ = std::move(task);
    next_ = nullptr;
    return Progress::moved;
  }
  bool in_progress() const { return task_ || next_; }
  bool has_task() const { return task_ != nullptr; }

 private:
  static constexpr std::chrono::microseconds kEventNap{20};
  using Next = Progress (Chain::*)();

  std::unique_ptr<Task> task_;
  Event event_;
  Next next_ = nullptr;
};

}  // namespace ringcomm
