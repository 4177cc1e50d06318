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
    if (!under_way()) return;
    Chain::abandon();
    flow_.settle();
  }

 protected:
  RouteTask(Channel& channel, Flow& flow, Call call, std::shared_ptr<DeviceLocation> place)
      : channel_(channel), flow_(flow), ranks_(channel.size()), me_(channel.rank()), asked_(call),
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
    asked_.agreed ? then(next) : after(comparison_of(asked_), next);
  }
  // Ends the task. The result is ready after the stream's present work.
  Progress end() {
    flow_.unpack(call_, asked_.fragments);
    flow_.finish(*place_);
    return Progress::done;
  }
  Progress go_by_the_host() {
    asked_.agreed = asked_.is_subcall = true;
    return end_with(make_staged(channel_, asked_, device_copies(place_), false));
  }

  // Reduces on the stream. A logical op of a single source reduces it with itself by "or", so that
  // its values become 0 or 1.
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
  Call asked_, call_;  // the caller's; and with a contiguous array, and averages as divided sums
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
