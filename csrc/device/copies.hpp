// Defines Copies, which copies between a call's buffers and the host memory of staged tasks
// (staged_task.hpp). device_copies() is for buffers of a device; host_copies() is for a rank that
// has no device, and takes part with a placeholder.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device_location.hpp"

namespace ringcomm {

using Mark = std::shared_ptr<const Event>;  // null if the event has already happened

class Copies {
 public:
  virtual ~Copies() = default;
  virtual bool in_behind(const Event& event) = 0;  // true if later in() copies wait for the event
  virtual void in(void* host, const void* buffer, std::size_t nbytes) = 0;
  virtual void out(void* buffer, const void* host, std::size_t nbytes) = 0;
  virtual Mark mark_in() = 0;  // happens after all copies that in() has started
  virtual Mark mark_out() = 0;
  virtual void finish() = 0;            // no copy follows: the result is ready after the copies started so far
  virtual bool give_up() noexcept = 0;  // waits until no copy uses the buffers; false: a copy may still use them
  virtual Device* device() const = 0;   // null: the buffers are in host memory
};

// Uses two streams of the device, so that copies run in both directions at the same time.
std::unique_ptr<Copies> device_copies(std::shared_ptr<DeviceLocation> place);
std::unique_ptr<Copies> host_copies();

}  // namespace ringcomm
