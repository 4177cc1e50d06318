// A call on a route: calls on the host, one after the other, and what a stream of the route's is given between them.
#pragma once

#include <memory>
#include <utility>

#include "call/channel.hpp"
#include "device/calls.hpp"
#include "device/flow.hpp"

namespace ringcomm {

class RouteTask : public Task {
 public:
  ~RouteTask() override { RouteTask::abandon(); }

  Progress advance() override {
    if (task_) {
      const Progress progress = task_->advance();
      if (progress != Progress::done) return progress;
      task_.reset();
    }
    const Progress progress = next();
    ended_ |= progress == Progress::done;
    return progress;
  }
  void abandon() noexcept override {
    if (std::exchange(ended_, true)) return;
    if (task_) task_->abandon();
    task_.reset();
    flow_.settle();
  }
  void nap(std::chrono::nanoseconds longest) override { task_ ? task_->nap(longest) : Task::nap(longest); }

 protected:
  RouteTask(Channel& channel, Flow& flow, Call call, std::shared_ptr<DevicePlace> place)
      : channel_(channel), flow_(flow), asked_(call), call_(std::move(call)), place_(std::move(place)) {
    if (call_.op != Op::average) return;
    call_.op = Op::sum;
    call_.post.divisor *= channel.size();
  }
  // At first, and whenever the call on the host that has been started has ended.
  virtual Progress next() = 0;
  void start(Call call) { task_ = channel_.start(std::move(call)); }

  Channel& channel_;
  Flow& flow_;
  Call asked_, call_;  // as it came; with its array in one piece, and averages as sums that are divided
  const std::shared_ptr<DevicePlace> place_;
  std::unique_ptr<Task> task_;  // on the host
  bool ended_ = false;
};

}  // namespace ringcomm
