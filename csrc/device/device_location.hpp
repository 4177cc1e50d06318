// Buffers in a GPU's memory, as one call has them: behind an event of the stream that they are made on, and with one
// behind which the result is there.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/memory_location.hpp"
#include "device/device.hpp"

namespace ringcomm {

class DeviceLocation final : public MemoryLocation, public std::enable_shared_from_this<DeviceLocation> {
 public:
  // Buffers are ready behind what the stream holds now; not `ordered`: at once.
  DeviceLocation(Device& device, CuStream stream, bool ordered, bool host_output);

  std::unique_ptr<Task> start(Channel& channel, Call call) override;
  std::shared_ptr<MemoryLocation> together(std::span<const std::shared_ptr<MemoryLocation>> places) const override;

  // Once the call has ended: what comes next on the stream comes behind its result. The host does not wait.
  void join(CuStream stream) const;
  void wait() const;  // the host does, for a result whose next stream nobody knows
  bool landed() const { return !done_ || done_->happened(); }  // once the call has ended: its result is there

  // ---- for tasks
  Device& device() const { return device_; }
  bool host_output() const { return host_output_; }  // the result lies in the host's memory
  void hold(CuStream stream) const;                  // until the buffers are ready
  void finish(std::shared_ptr<const Event> done);

 private:
  Device& device_;
  const bool host_output_;
  Event ready_;
  std::shared_ptr<const Event> done_;
  std::vector<std::shared_ptr<DeviceLocation>> others_;  // of a call for several, this one's among them
};

}  // namespace ringcomm
