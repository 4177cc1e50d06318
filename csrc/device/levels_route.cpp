// Implements the hierarchical route, `levels`, for several hosts. The ranks of a host reduce and
// scatter the array on their devices. Each rank exchanges its slice with the other hosts. The ranks
// of a host then gather the slices. Each device's link to the host transfers a slice in both
// directions, not the array. NCCL and Horovod's NCCLHierarchicalAllreduce work this way too.
#include <utility>

#include "device/route_task.hpp"
#include "device/routes.hpp"

namespace ringcomm {
namespace {

class LevelsTask final : public RouteTask {
 public:
  LevelsTask(Channel& channel, Flow& flow, Call call, std::shared_ptr<DeviceLocation> place)
      : RouteTask(channel, flow, std::move(call), std::move(place)), hosts_(channel.hosts()),
        sums_(call_.collective == Collective::allreduce) {
    begin_with(&LevelsTask::begin);
  }

 private:
  Progress begin() {
    flow_.begin(call_, *place_);
    cut();
    return go_on();
  }
  Progress go_on() {
    if (part_) part_->join(flow_.stream);
    if (done_ == parts_.size()) return end();
    auto& [level, call] = parts_[done_++];
    return start_on(level, std::move(call));
  }

  void cut() {
    SubChannels& levels = channel_.sub_channels();
    const bool roots = hosts_.host_of(call_.root) == hosts_.mine();
    if (sums_)
      parts_.emplace_back(*levels.host, share());
    else if (roots)
      parts_.emplace_back(*levels.host, to_its_host());
    parts_.emplace_back(*levels.lane, carry());
    if (sums_ || !roots) parts_.emplace_back(*levels.host, gather());
  }

  // Starts a call after the flow's present work. It counts as a separate call of the channel when
  // departures are checked, so that no rank waits for a call that a departed rank has not begun.
  Progress start_on(Channel& level, Call call) {
    channel_.context().departures.begin_call();
    part_ = std::make_shared<DeviceLocation>(flow_.device, flow_.stream, true, false);
    call.place = part_;
    call.on_device = true;
    return after(level.start(std::move(call)), &LevelsTask::go_on);
  }
  Call part(Collective collective) const {
    Call call = part_of(call_.name + "/levels", collective);
    call.dtype = call_.dtype;
    call.op = call_.op;
    call.input = call.output = call_.output;
    call.count = call_.count;
    return call;
  }

  Part slice() const { return slice_of(call_.count, item_, hosts_.lanes(), hosts_.local_rank(me_)); }
  void* mine() const { return at(call_.output, slice().first * item_); }
  std::vector<std::size_t> slices() const {
    std::vector<std::size_t> counts;
    for (int lane = 0; lane < hosts_.lanes(); ++lane)
      counts.push_back(slice_of(call_.count, item_, hosts_.lanes(), lane).count);
    return counts;
  }

  // Each rank writes only to its slice, which no other rank reads, so the array may be reduced in
  // place.
  Call share() const {
    Call call = part(Collective::reducescatter);
    call.input = call_.input;
    call.output = mine();
    call.counts = slices();
    call.pre = call_.pre;
    return call;
  }
  Call to_its_host() const {
    Call call = part(Collective::broadcast);
    call.input = call_.input;
    call.root = hosts_.local_rank(call_.root);
    return call;
  }
  Call carry() const {
    Call call = part(call_.collective);
    call.input = call.output = mine();
    call.count = slice().count;
    call.root = hosts_.host_of(call_.root);
    if (sums_) call.post = call_.post;
    call.wire = call_.wire;
    return call;
  }
  Call gather() const {
    Call call = part(Collective::allgather);
    call.input = mine();
    call.counts = slices();
    return call;
  }

  const Hosts& hosts_;
  const bool sums_;
  std::vector<std::pair<Channel&, Call>> parts_;  // in order
  std::size_t done_ = 0;
  std::shared_ptr<DeviceLocation> part_;  // location of the current part
};

class LevelsRoute final : public RouteOf<LevelsTask, Flow> {
 public:
  LevelsRoute(Device& device, std::size_t least) : RouteOf("levels", device), least_(least) {}
  bool takes(const Call& call) const override {
    const bool ours = call.collective == Collective::allreduce || call.collective == Collective::broadcast;
    return ours && kernels_take(call) && call.count * size_of(call.dtype) >= least_;
  }

 private:
  const std::size_t least_;
};

}  // namespace

std::unique_ptr<DeviceRoute> make_levels_route(Device& device, std::size_t least) {
  return std::make_unique<LevelsRoute>(device, least);
}

}  // namespace ringcomm
