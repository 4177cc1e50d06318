// Starts calls on devices: the first one exchanges abilities, later ones select a route.
#include "device/side.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "base/trace.hpp"
#include "collectives/channel.hpp"
#include "device/aware_probe.hpp"
#include "device/calls.hpp"
#include "device/chain.hpp"
#include "device/copies.hpp"
#include "device/routes.hpp"
#include "device/staged_task.hpp"

namespace ringcomm {
namespace {

// Minimum bytes of a call on the route `levels`. Estimated: no GPU has been timed.
constexpr std::size_t kLeastLevels = 1 << 20;
// Minimum bytes of a call on the ipc route if ranks share a GPU, which runs their kernels one after
// another. On an H200, 1 MiB of two ranks takes 0.37 ms through the host and 0.66 ms by kernels;
// 16 MiB of four ranks takes 3.1 and 1.8 ms (benchmarks/results/gpu_bench_h200.txt). The exact
// crossover has not been measured.
constexpr std::size_t kLeastOnSharedGpus = 4 << 20;

// The first call on devices of a channel. Ranks compare it, and exchange their abilities before it
// runs.
class FirstTask final : public Chain {
 public:
  FirstTask(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place)
      : channel_(channel), call_(std::move(call)), place_(std::move(place)) {
    after(channel_.start(comparison_of(call_)), &FirstTask::exchange_abilities);
  }
  ~FirstTask() override { FirstTask::abandon(); }

 private:
  Progress exchange_abilities() {
    mine_ = ability_of(place_->device());
    if (DeviceSide::considers("aware", channel_.device_route())) {
      probe_ = std::make_unique<AwareProbe>(channel_, place_->device());
      if (probe_->possible()) mine_.aware = kReported;
    }
    all_.resize(static_cast<std::size_t>(channel_.size()));
    Call call = records_of(call_.name + "/abilities", channel_.size(), &mine_, sizeof mine_, all_.data());
    return after(channel_.start(std::move(call)), &FirstTask::probe);
  }
  Progress probe() {
    if (probe_) probe_->begin(all_);
    return after(std::move(probe_), &FirstTask::go);
  }
  Progress go() {
    DeviceSide::of(channel_).agree(channel_, place_->device(), all_);
    call_.agreed = true;
    return end_with(make_device_task(channel_, std::move(call_), place_));
  }

  Channel& channel_;
  Call call_;
  const std::shared_ptr<DeviceLocation> place_;
  Ability mine_;
  std::vector<Ability> all_;
  std::unique_ptr<AwareProbe> probe_;  // until it starts
};

// A call on a device. If it uses a device route, it is counted, and its timeline event ends when
// the host has started all of its work. If this rank's device fails, peers are notified.
class DeviceTask final : public Task {
 public:
  DeviceTask(Channel& channel, Device& device, const DeviceRoute* route, const Call& call, std::unique_ptr<Task> task)
      : channel_(channel), device_(device), route_(route), collective_(call.collective), thread_(call.agreed ? 1 : 0),
        calls_(call.is_subcall ? 0 : std::max<std::size_t>(1, call.fused_counts.size())),
        name_(call.name.empty() ? std::string(name_of(collective_)) : call.name), task_(std::move(task)) {}
  Progress advance() override {
    try {
      const Progress progress = task_->advance();
      if (progress == Progress::blocked) look_around();
      if (progress == Progress::done && route_) record();
      return progress;
    } catch (const Error& error) {
      if (error.fatal()) channel_.fail(error);
      throw;
    } catch (const std::bad_alloc&) {
      channel_.fail(Error(ErrorKind::transport, "this rank ran out of memory in an earlier call"));
      throw;
    }
  }
  void abandon() noexcept override { task_->abandon(); }
  void nap(std::chrono::nanoseconds longest) override { task_->nap(longest); }
  std::string_view label() const override { return name_; }

 private:
  // Checks for failures of other ranks and for kernel errors. Without these checks the host might
  // wait forever, because it waits for streams, and streams wait for peers' events without limit.
  void look_around() {
    if (!look_.at(now_ns())) return;
    channel_.look_for_loss();
    device_.record(device_.from_device());
  }
  void record() {
    channel_.book(collective_, route_->choice(), calls_);
    if (begun_ns_ != 0 && trace().enabled())
      trace().record("run", name_, route_->choice().name, begun_ns_, now_ns(), 0, channel_.rank(), thread_);
  }

  Channel& channel_;
  Device& device_;
  const DeviceRoute* const route_;  // null: through the host
  const Collective collective_;
  const int thread_;
  const std::uint64_t calls_;
  const std::string name_;
  const std::unique_ptr<Task> task_;
  const std::int64_t begun_ns_ = trace().enabled() ? now_ns() : 0;
  Every look_ = Every(kLookEvery, now_ns());
};

// Starts a call on `route`; null: through the host.
std::unique_ptr<Task> make_task(Channel& channel, DeviceRoute* route, Call call,
                                std::shared_ptr<DeviceLocation> place) {
  if (route) return route->start(channel, std::move(call), std::move(place));
  const bool host_output = place->host_output();
  return make_staged(channel, std::move(call), device_copies(std::move(place)), host_output);
}

}  // namespace

DeviceSide& DeviceSide::of(Channel& channel) {
  if (!channel.device_state()) channel.device_state() = std::make_shared<DeviceSide>(channel.node());
  return *static_cast<DeviceSide*>(channel.device_state().get());
}

Ability ability_of(Device& device) {
  Ability mine;
  std::memcpy(mine.uuid, device.uuid().data(), sizeof mine.uuid);
  mine.process = getpid();
  mine.nccl = nccl_version();
  mine.kernels = device.has_kernels();
  return mine;
}

void DeviceSide::agree(Channel& channel, Device& device, const std::vector<Ability>& all) {
  agreed_ = true;
  const std::string wanted = channel.device_route();
  const auto consider = [&](std::string_view name, const std::string& why_not, auto make) {
    const bool considered = considers(name, wanted);
    statuses_.push_back({std::string(name), considered ? why_not : "RINGCOMM_GPU_ROUTE=" + wanted});
    if (!considered) return;
    if (why_not.empty()) return routes_.push_back(make());
    if (wanted == name)
      throw Error(ErrorKind::invalid, "RINGCOMM_GPU_ROUTE=" + wanted + " is not possible: " + why_not + "; use auto");
  };
  consider("nccl", why_no_nccl(all), [&] { return make_nccl_route(device); });
  const std::size_t least = share_gpus(all) && wanted != "ipc" ? kLeastOnSharedGpus : 0;
  consider("ipc", why_no_ipc(all, channel.on_one_host()), [&] {
    if (least == 0) routes_.push_back(make_one_shot_route(device, channel.size()));
    return make_ipc_route(device, least);
  });
  consider("levels", why_no_levels(all, channel.hosts()),
           [&] { return make_levels_route(device, wanted == "levels" ? 0 : kLeastLevels); });
  consider("aware", why_no_aware(all), [&] { return make_aware_route(device); });
}

DeviceRoute* DeviceSide::route_for(const Call& call) const {
  for (const auto& route : routes_) {
    if (route->takes(call)) return route.get();
  }
  return nullptr;
}

// A placeholder has no device, so its call uses no device route.
std::unique_ptr<Task> make_device_task(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place) {
  const bool all_ranks = channel.size() > 1 && !call.has_placeholders;
  DeviceSide& side = DeviceSide::of(channel);
  const bool first = all_ranks && !side.agreed();
  DeviceRoute* const route = all_ranks && !first && !place->host_output() ? side.route_for(call) : nullptr;
  Device& device = place->device();
  auto task = first ? std::make_unique<FirstTask>(channel, call, std::move(place))
                    : make_task(channel, route, call, std::move(place));
  return std::make_unique<DeviceTask>(channel, device, route, call, std::move(task));
}

}  // namespace ringcomm
