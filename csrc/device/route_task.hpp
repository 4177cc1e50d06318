// Defines the base of calls on a route: a chain of host calls, and of work on the route's stream
// between them.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <utility>

#include "collectives/channel.hpp"
#include "device/calls.hpp"
#include "device/chain.hpp"
#include "device/copies.hpp"
#include "device/flow.hpp"
#include "device/side.hpp"
#include "device/staged_task.hpp"

namespace ringcomm {

class RouteTask : public Chain {
 public:
  ~RouteTask() override { RouteTask::abandon(); }
  void abandon() noexcept override {
    if (!in_progress()) return;
    Chain::abandon();
    flow_.try_synchronize();
  }

 protected:
  RouteTask(Channel& channel, Flow& flow, Call call, std::shared_ptr<DeviceLocation> place)
      : channel_(channel), flow_(flow), ranks_(channel.size()), me_(channel.rank()), original_call_(call),
        call_(std::move(call)), item_(size_of(call_.dtype)), place_(std::move(place)) {
    if (call_.op != Op::average) return;
    call_.op = Op::sum;
    call_.post.divisor *= channel.size();
  }

  using Chain::after;
  template <class Mine>
  Progress after(Call call, Progress (Mine::*next)()) {
    return after(channel_.start(std::move(call)), next);
  }
  // Compares the call first, unless ranks have agreed on it.
  template <class Mine>
  void begin_with(Progress (Mine::*next)()) {
    original_call_.agreed ? then(next) : after(comparison_of(original_call_), next);
  }
  // Ends the task. The result is ready after the stream's present work.
  Progress end() {
    flow_.unpack(call_, original_call_.fragments);
    flow_.finish(*place_);
    return Progress::done;
  }
  Progress use_staged_route() {
    original_call_.agreed = original_call_.is_subcall = true;
    return end_with(make_staged(channel_, original_call_, device_copies(place_), false));
  }

  // Reduces on the stream. For a logical op of a single source, combines the source with itself by
  // "or", so that its values become 0 or 1.
  void reduce(std::span<const void* const> sources, std::span<void* const> destinations, Part part) {
    if (sources.empty()) return;
    const bool alone = sources.size() == 1 && is_logical(call_.op);
    const std::array<const void*, 2> twice{sources[0], sources[0]};
    flow_.launcher.reduce(alone ? std::span(twice) : sources, destinations, part, call_.dtype,
                          alone ? Op::lor : call_.op, call_.pre, call_.post, flow_.stream);
  }
  void copy(void* to, const void* from, std::size_t nbytes) const {
    if (nbytes > 0 && to != from) flow_.device.copy(to, from, nbytes, flow_.stream);
  }

  Channel& channel_;
  Flow& flow_;
  const int ranks_, me_;
  Call original_call_, call_;  // the caller's; a copy with a contiguous array, and a divided sum for an average
  const std::size_t item_;
  const std::shared_ptr<DeviceLocation> place_;
};

// A route that runs calls as tasks, and keeps state from call to call.
template <class TaskOfIt, class Kept>
class RouteOf : public DeviceRoute {
 public:
  template <class... Arguments>
  explicit RouteOf(std::string name, Arguments&&... arguments)
      : DeviceRoute(std::move(name)), kept_(std::forward<Arguments>(arguments)...) {}
  std::unique_ptr<Task> start(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place) override {
    return std::make_unique<TaskOfIt>(channel, kept_, std::move(call), std::move(place));
  }

 protected:
  Kept kept_;
};

}  // namespace ringcomm
