#include "device/flow.hpp"

#include <bit>

#include "base/error.hpp"

namespace ringcomm {
namespace {

std::vector<gpu::Tensor> tensors_of(const std::vector<Fragment>& fragments, std::byte* together, std::size_t item,
                                    bool in) {
  std::vector<gpu::Tensor> tensors;
  tensors.reserve(fragments.size());
  for (const Fragment& one : fragments) {
    if (in)
      tensors.push_back({one.input, together, one.count});
    else
      tensors.push_back({together, one.output, one.count});
    together += one.count * item;
  }
  return tensors;
}

}  // namespace

void Flow::begin(Call& call, const DevicePlace& place) {
  place.hold(stream);
  if (call.fragments.empty()) return;
  const std::size_t item = size_of(call.dtype), nbytes = call.count * item;
  if (room_ == 0 || nbytes > room_bytes_) {
    if (room_ != 0) device.keep(std::exchange(room_, 0), room_bytes_, stream);
    room_bytes_ = std::bit_ceil(nbytes);
    room_ = device.borrow(room_bytes_);
  }
  auto* const together = reinterpret_cast<std::byte*>(room_);
  launcher.pack(tensors_of(call.fragments, together, item, true), call.dtype, stream);
  call.input = call.output = together;
}

void Flow::unpack(const Call& call, const std::vector<Fragment>& fragments) {
  if (fragments.empty()) return;
  launcher.pack(tensors_of(fragments, static_cast<std::byte*>(call.output), size_of(call.dtype), false), call.dtype,
                stream);
}

void Flow::finish(DevicePlace& place) { place.finish(std::make_shared<const Event>(device.record(stream))); }

void Flow::settle() noexcept {
  try {
    device.record(stream).wait();
  } catch (const Error&) {  // the driver is lost, and touches nothing any more
  }
}

}  // namespace ringcomm
