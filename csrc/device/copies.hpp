// How bytes get from a call's buffers into memory that the host's calls work on, and back.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device_location.hpp"

namespace ringcomm {

using Mark = std::shared_ptr<const Event>;  // null: it has been passed

class Copies {
 public:
  virtual ~Copies() = default;
  virtual bool in_behind(const Event& event) = 0;  // whether what comes in next waits for it by itself
  virtual void in(void* host, const void* buffer, std::size_t nbytes) = 0;
  virtual void out(void* buffer, const void* host, std::size_t nbytes) = 0;
  virtual Mark mark_in() = 0;  // behind all that in() has begun
  virtual Mark mark_out() = 0;
  virtual void finish() = 0;            // nothing comes any more: the result is there behind what has been begun
  virtual bool give_up() noexcept = 0;  // waits until nothing touches the buffers any more; false: something may yet
  virtual Device* device() const = 0;   // null: the buffers are in the host's memory
};

// On two streams of the device, so that both directions of its link are busy.
std::unique_ptr<Copies> device_copies(std::shared_ptr<DeviceLocation> place);
std::unique_ptr<Copies> host_copies();

}  // namespace ringcomm
