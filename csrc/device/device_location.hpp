// Describes a call's buffers in a GPU's memory. They are ready after an event of the stream that
// produces them. The result is ready after another event.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/memory_location.hpp"
#include "device/device.hpp"

namespace ringcomm {

class DeviceLocation final : public MemoryLocation, public std::enable_shared_from_this<DeviceLocation> {
 public:
  // If `ordered`, buffers are ready after the work that the stream holds now; otherwise they are
  // ready immediately.
  DeviceLocation(Device& device, CuStream stream, bool ordered, bool host_output);

  std::unique_ptr<Task> start(Channel& channel, Call call) override;
  std::shared_ptr<MemoryLocation> together(std::span<const std::shared_ptr<MemoryLocation>> places) const override;

  // join(): requires that the call has ended. Later work of the stream waits for its result; the
  // host does not wait.
  void join(CuStream stream) const;
  void wait() const;                                           // blocks the host; for a result that any stream may read
  bool landed() const { return !done_ || done_->happened(); }  // after the call's end: true if its result is ready

  // ---- for tasks
  Device& device() const { return device_; }
  bool host_output() const { return host_output_; }  // the result is in host memory
  void hold(CuStream stream) const;                  // makes the stream wait until the buffers are ready
  void finish(std::shared_ptr<const Event> done);

 private:
  Device& device_;
  const bool host_output_;
  Event ready_;
  std::shared_ptr<const Event> done_;
  std::vector<std::shared_ptr<DeviceLocation>> others_;  // locations of the calls that this call fuses
};

}  // namespace ringcomm
