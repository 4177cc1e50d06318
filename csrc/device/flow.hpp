// What a route does on a stream of its own, whose order is the calls': so nothing there waits for another channel's.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device_location.hpp"
#include "device/launch.hpp"

namespace ringcomm {

// Memory of a device that is kept from call to call, for what one stream does.
class DeviceRoom {
 public:
  DeviceRoom(Device& device, CuStream stream) : device_(device), stream_(stream) {}
  ~DeviceRoom() { release(); }
  DeviceRoom(const DeviceRoom&) = delete;
  DeviceRoom& operator=(const DeviceRoom&) = delete;
  std::byte* at_least(std::size_t nbytes);         // what is in it is lost if it must grow
  void strand() noexcept { data_ = nbytes_ = 0; }  // for nobody ever: a send that could not be cancelled may read it
  void release() noexcept;                         // for others, behind what the stream holds

 private:
  Device& device_;
  const CuStream stream_;
  CuPointer data_ = 0;
  std::size_t nbytes_ = 0;
};

class Flow {
 public:
  explicit Flow(Device& device)
      : device(device), stream(device.make_stream()), launcher(device), room_(device, stream) {}
  ~Flow() {
    room_.release();
    device.end_stream(stream);
  }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Has the call's array in one piece: where it lies, or a copy of its fragments, which unpack() brings back. Behind
  // what the place waits for. `room`: for a copy; null: memory of its own.
  void begin(Call& call, const DeviceLocation& place, std::byte* room = nullptr);
  void unpack(const Call& call, const std::vector<Fragment>& fragments);
  void finish(DeviceLocation& place);  // what the stream holds is all there is to it
  void settle() noexcept { device.settle(stream); }
  void strand() noexcept { room_.strand(); }  // as DeviceRoom has it, of copies of fragments

  Device& device;
  const CuStream stream;
  Launcher launcher;

 private:
  DeviceRoom room_;
};

}  // namespace ringcomm
