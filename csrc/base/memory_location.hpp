// Where the buffers of a call lie, if that is not memory which this host's processors read: it has calls run on a
// channel in its own way, by others on memory that they do. Made for one call; null in a call: it is the host's.
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
  // What Channel::start() gives for the call.
  virtual std::unique_ptr<Task> start(Channel& channel, Call call) = 0;
  // For all of these, in fragments of one call; this is the first one's.
  virtual std::shared_ptr<MemoryLocation> together(std::span<const std::shared_ptr<MemoryLocation>> places) const = 0;
};

}  // namespace ringcomm
