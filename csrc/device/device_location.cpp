// Implements the memory location of GPU buffers.
#include "device/device_location.hpp"

#include "collectives/channel.hpp"
#include "device/side.hpp"

namespace ringcomm {

DeviceLocation::DeviceLocation(Device& device, CuStream stream, bool ordered, bool host_output)
    : device_(device), host_output_(host_output) {
  if (ordered) ready_ = device_.record(stream);
}

std::unique_ptr<Task> DeviceLocation::start(Channel& channel, Call call) {
  return make_device_task(channel, std::move(call), shared_from_this());
}

std::shared_ptr<MemoryLocation> DeviceLocation::together(
    std::span<const std::shared_ptr<MemoryLocation>> places) const {
  auto all = std::make_shared<DeviceLocation>(device_, nullptr, false, false);
  for (const auto& place : places) all->others_.push_back(std::static_pointer_cast<DeviceLocation>(place));
  return all;
}

void DeviceLocation::hold(CuStream stream) const {
  ready_.hold(stream);
  for (const auto& other : others_) other->hold(stream);
}

void DeviceLocation::finish(std::shared_ptr<const Event> done) {
  for (const auto& other : others_) other->finish(done);
  done_ = std::move(done);
}

void DeviceLocation::wait() const {
  if (done_) done_->wait();
}

void DeviceLocation::join(CuStream stream) const {
  if (done_) done_->hold(stream);
}

}  // namespace ringcomm
