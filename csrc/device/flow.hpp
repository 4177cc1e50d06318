// Provides a separate stream for a route, which runs the route's calls in order. So a call never
// waits for another channel's call. Fragments are packed and unpacked on this stream.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device_location.hpp"
#include "device/launch.hpp"

namespace ringcomm {

// Device memory that is kept from call to call, for the work of one stream.
class DeviceRoom {
 public:
  DeviceRoom(Device& device, CuStream stream) : device_(device), stream_(stream) {}
  ~DeviceRoom() { release(); }
  DeviceRoom(const DeviceRoom&) = delete;
  DeviceRoom& operator=(const DeviceRoom&) = delete;
  std::byte* at_least(std::size_t nbytes);       // growing discards the contents
  void leak() noexcept { data_ = nbytes_ = 0; }  // never reused: an uncancelled send may still read it
  void release() noexcept;                       // reusable after the work that the stream holds

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

  // Makes the call's array contiguous: if it has fragments, packs them into a copy, which unpack()
  // copies back. The stream waits until the place is ready. `room`: memory for the copy; null: the
  // flow's memory.
  void begin(Call& call, const DeviceLocation& place, std::byte* room = nullptr);
  void unpack(const Call& call, const std::vector<Fragment>& fragments);
  void finish(DeviceLocation& place);  // the result is ready after the stream's present work
  void try_synchronize() noexcept { device.try_synchronize(stream); }
  void leak() noexcept { room_.leak(); }  // as in DeviceRoom, for packed fragments

  Device& device;
  const CuStream stream;
  Launcher launcher;

 private:
  DeviceRoom room_;
};

}  // namespace ringcomm
