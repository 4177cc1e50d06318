// Implements the probe of GPU-aware MPI as a chain of steps: fill, exchange, fetch, compare, agree.
#include "device/aware_probe.hpp"

#include <algorithm>
#include <new>

#include "collectives/channel.hpp"
#include "device/calls.hpp"
#include "device/kernels/parameters.hpp"
#include "device/routes.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kEach = 64 << 10;  // bytes; more than the eager limit of MPI libraries

std::byte expected(int rank, std::size_t index) {  // never 0
  return static_cast<std::byte>(1 + (static_cast<std::size_t>(rank) * 7 + index) % 251);
}

}  // namespace

AwareProbe::AwareProbe(Channel& channel, Device& device)
    : channel_(channel), device_(device), nbytes_(static_cast<std::size_t>(channel.size()) * kEach),
      room_(device, device.from_device()) {
  const bool too_many = static_cast<unsigned>(channel.size()) > gpu::kMostPointers;  // our kernels' limit
  if (too_many || !channel.context().transport->takes_device_memory()) return;
  try {
    memory_ = room_.at_least(nbytes_);
  } catch (const std::bad_alloc&) {  // the GPU is full
  }
}

void AwareProbe::begin(std::vector<Ability>& all) {
  all_ = &all;
  if (std::ranges::all_of(all, [](const Ability& ability) { return ability.aware >= kReported; }))
    then(&AwareProbe::exchange);
}

void AwareProbe::abandon() noexcept {
  if (!in_progress()) return;
  Chain::abandon();
  for (const CuStream stream : {device_.to_device(), device_.from_device()}) {
    if (!device_.try_synchronize(stream)) DeviceSide::of(channel_).stage.leak();
  }
}

Progress AwareProbe::exchange() {
  if (slot().left && !slot().left->happened()) return Progress::blocked;
  const auto me = static_cast<std::size_t>(channel_.rank());
  std::byte* const host = slot().data;
  std::fill_n(host, nbytes_, std::byte{0});
  for (std::size_t i = 0; i < kEach; ++i) host[me * kEach + i] = expected(channel_.rank(), i);
  device_.copy(memory_, host, nbytes_, device_.to_device());
  place_ = std::make_shared<DeviceLocation>(device_, device_.to_device(), true, false);
  route_ = make_aware_route(device_);
  Call call = records_of("aware/probe", channel_.size(), memory_ + me * kEach, kEach, memory_);
  return after(route_->start(channel_, std::move(call), place_), &AwareProbe::fetch);
}

Progress AwareProbe::fetch() {
  place_->join(device_.from_device());
  device_.copy(slot().data, memory_, nbytes_, device_.from_device());
  return after(device_.record(device_.from_device()), &AwareProbe::send_result);
}

Progress AwareProbe::send_result() {
  worked_ = 1;
  for (std::size_t at = 0; at < nbytes_; ++at) {
    if (slot().data[at] != expected(static_cast<int>(at / kEach), at % kEach)) worked_ = 0;
  }
  return after(channel_.start(least_of("aware/worked", worked_)), &AwareProbe::prove);
}

Progress AwareProbe::prove() {
  for (Ability& ability : *all_) ability.aware = worked_ ? kProved : kReported;
  return Progress::done;
}

Stage::Slot& AwareProbe::slot() { return DeviceSide::of(channel_).stage.slots(1, nbytes_, &device_).front(); }

}  // namespace ringcomm
