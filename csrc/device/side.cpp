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

// Bytes from which levels are worth their steps. Estimated: no GPU has been timed.
constexpr std::size_t kLeastLevels = 1 << 20;
// Bytes from which kernels of several processes on one GPU, which run in turn, are faster than
// copies by the host. On an H200, 1 MiB of two ranks takes 0.37 ms by the host and 0.66 by kernels;
// 16 MiB of four ranks takes 3.1 and 1.8 (benchmarks/results/gpu_bench_h200.txt). The exact
// crossover between them has not been measured.
constexpr std::size_t kLeastOnSharedGpus = 4 << 20;

// The first call on devices of a channel. Ranks compare it, and exchange their abilities before it
// runs.
class FirstTask final : public Chain {
 public:
  FirstTask(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place)
      : channel_(channel), call_(std::move(call)), place_(std::move(place)) {
    after(channel_.start(comparison_of(call_)), &FirstTask::tell);
  }
  ~FirstTask() override { FirstTask::abandon(); }

 private:
  Progress tell() {
    mine_ = ability_of(place_->device());
    if (DeviceSide::considers("aware", channel_.device_route())) {
      probe_ = std::make_unique<AwareProbe>(channel_, place_->device());
      if (probe_->possible()) mine_.aware = kSaid;
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

// Any call on a device. On a route it is counted, and its timeline event lasts until the host has
// started all of its work. If this rank's device fails, peers are notified.
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
      channel_.fail(Error(ErrorKind::transport, "this rank had no memory for an earlier call"));
      throw;
    }
  }
  void abandon() noexcept override { task_->abandon(); }
  void nap(std::chrono::nanoseconds longest) override { task_->nap(longest); }
  std::string_view label() const override { return name_; }

 private:
  // Streams wait for peers' events without limit, and hosts wait for streams. So this checks here
  // for kernel errors, and for failures of other ranks.
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
    const bool asked = considers(name, wanted);
    statuses_.push_back({std::string(name), asked ? why_not : "RINGCOMM_GPU_ROUTE=" + wanted});
    if (!asked) return;
    if (why_not.empty()) return routes_.push_back(make());
    if (wanted == name)
      throw Error(ErrorKind::invalid, "RINGCOMM_GPU_ROUTE=" + wanted + " cannot be: " + why_not + "; use auto");
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

// A placeholder has no device, so such a call uses no device route.
std::unique_ptr<Task> make_device_task(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place) {
  const bool everybody = channel.size() > 1 && !call.stand_ins;
  DeviceSide& side = DeviceSide::of(channel);
  const bool first = everybody && !side.agreed();
  DeviceRoute* const route = everybody && !first && !place->host_output() ? side.route_for(call) : nullptr;
  Device& device = place->device();
  auto task = first ? std::make_unique<FirstTask>(channel, call, std::move(place))
                    : make_task(channel, route, call, std::move(place));
  return std::make_unique<DeviceTask>(channel, device, route, call, std::move(task));
}

}  // namespace ringcomm
