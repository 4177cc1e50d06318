// What a route does on a stream of its own, whose order is the calls': so nothing there waits for another channel's.
#pragma once

#include <cstddef>
#include <memory>

#include "device/launch.hpp"
#include "device/place.hpp"

namespace ringcomm {

class Flow {
 public:
  explicit Flow(Device& device) : device(device), stream(device.make_stream()), launcher(device) {}
  ~Flow() {
    if (room_ != 0) device.keep(room_, room_bytes_, stream);
    device.end_stream(stream);
  }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Has the call's array in one piece: where it lies, or a copy of its fragments, which unpack() brings back. Behind
  // what the place waits for.
  void begin(Call& call, const DevicePlace& place);
  void unpack(const Call& call, const std::vector<Fragment>& fragments);
  void finish(DevicePlace& place);  // what the stream holds is all there is to it
  void settle() noexcept;           // waits for what the stream holds

  Device& device;
  const CuStream stream;
  Launcher launcher;

 private:
  CuPointer room_ = 0;
  std::size_t room_bytes_ = 0;
};

}  // namespace ringcomm
