// Describes where the buffers of a call are stored, if not in host memory. A location runs the call
// on a channel in its own way, with the help of calls on host memory. It is made for one call; null
// in a call means host memory.
#pragma once

#include <memory>
#include <span>

namespace ringcomm {

class Channel;
class Task;
struct Call;

class MemoryLocation {
 public:
  virtual ~MemoryLocation() = default;
  // Returns what Channel::start() returns for the call.
  virtual std::unique_ptr<Task> start(Channel& channel, Call call) = 0;
  // Returns one location for all fragments of a call. `places` are the locations of the fragments;
  // this object is the first of them.
  virtual std::shared_ptr<MemoryLocation> together(std::span<const std::shared_ptr<MemoryLocation>> places) const = 0;
};

}  // namespace ringcomm
