// Functions of devices for _device.pxi, with types that Cython can pass.
#pragma once

#include "base/call.hpp"
#include "collectives/channel.hpp"
#include "device/device_location.hpp"
#include "device/launch.hpp"
#include "device/side.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline CuStream stream_of(std::uintptr_t handle) { return reinterpret_cast<CuStream>(handle); }
// Returns a location whose buffers are ready after the work that all the streams hold now.
inline std::shared_ptr<DeviceLocation> device_location(int device, const std::vector<std::uintptr_t>& streams,
                                                       bool host_output) {
  std::vector<std::shared_ptr<MemoryLocation>> places;
  for (const std::uintptr_t stream : streams)
    places.push_back(std::make_shared<DeviceLocation>(Device::get(device), stream_of(stream), true, host_output));
  if (places.empty()) return std::make_shared<DeviceLocation>(Device::get(device), nullptr, false, host_output);
  return std::static_pointer_cast<DeviceLocation>(places.size() == 1 ? places[0] : places[0]->together(places));
}
inline void set_location(Call& call, std::shared_ptr<DeviceLocation> place) {
  call.place = std::move(place);
  call.on_device = true;
}
// Returns names of routes and reasons why they are unusable, alternating; empty before ranks agree.
inline std::vector<std::string> device_route_statuses(Channel& channel) {
  std::vector<std::string> route_statuses;
  if (channel.device_state()) {
    for (const DeviceSide::RouteStatus& status : DeviceSide::of(channel).route_statuses())
      route_statuses.insert(route_statuses.end(), {status.name, status.why_not});
  }
  return route_statuses;
}
inline bool landed(const std::shared_ptr<DeviceLocation>& place) { return !place || place->landed(); }
// Copies between any two addresses, in stream order. `wait`: blocks until the copy is done.
inline void device_copy(int device, std::uintptr_t to, std::uintptr_t from, std::size_t nbytes, std::uintptr_t stream,
                        bool wait) {
  Device& it = Device::get(device);
  if (nbytes > 0) it.call("copy between the device and the host", &Driver::copy, to, from, nbytes, stream_of(stream));
  if (wait) it.call("wait for a stream", &Driver::stream_synchronize, stream_of(stream));
}
// Copies elements of `size` bytes between strided arrays, in stream order. Strides are in bytes.
inline void device_arrange(int device, std::uintptr_t to, const std::vector<std::int64_t>& to_strides,
                           std::uintptr_t from, const std::vector<std::int64_t>& from_strides,
                           const std::vector<std::uint64_t>& shape, unsigned size, std::uintptr_t stream) {
  std::vector<gpu::Dimension> dimensions;
  for (std::size_t d = 0; d < shape.size(); ++d) dimensions.push_back({shape[d], from_strides[d], to_strides[d]});
  Launcher(Device::get(device))
      .arrange(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), dimensions, size, stream_of(stream));
}
// Copies arrays, each from one address to another. One kernel copies up to 128 arrays.
inline void device_pack(int device, const std::vector<std::uintptr_t>& from, const std::vector<std::uintptr_t>& to,
                        const std::vector<std::size_t>& counts, int dtype, std::uintptr_t stream) {
  std::vector<gpu::Tensor> tensors;
  for (std::size_t i = 0; i < counts.size(); ++i)
    tensors.push_back({reinterpret_cast<const void*>(from[i]), reinterpret_cast<void*>(to[i]), counts[i]});
  Launcher(Device::get(device)).pack(std::move(tensors), static_cast<DType>(dtype), stream_of(stream));
}
// Returns the device that has the memory at an address; -1: none.
inline int device_of(std::uintptr_t data) {
  constexpr int kMemoryType = 2, kOrdinal = 9, kDeviceMemory = 2;  // CUpointer_attribute, CUmemorytype
  const Driver& driver = Device::get(0).driver();
  unsigned type = 0;
  int ordinal = -1;
  const CuResult result = driver.pointer_attribute(&type, kMemoryType, data);
  if (result == kCuInvalidValue || (result == 0 && type != kDeviceMemory)) return -1;
  driver.check(result, "find the device of an address");
  driver.check(driver.pointer_attribute(&ordinal, kOrdinal, data), "find the device of an address");
  return ordinal;
}
inline bool capturing(int device, std::uintptr_t stream) {
  Device& it = Device::get(device);
  const Device::Current current(it);
  int state = 0;
  return it.driver().stream_capturing(stream_of(stream), &state) == 0 && state != 0;
}
}  // namespace ringcomm_border
