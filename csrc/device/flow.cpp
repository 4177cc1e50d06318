// Implements the streams of routes, and their memory.
#include "device/flow.hpp"

#include <algorithm>
#include <bit>

namespace ringcomm {
namespace {

std::vector<gpu::Tensor> tensors_of(const std::vector<Fragment>& fragments, std::byte* together, std::size_t item,
                                    bool in) {
  std::vector<gpu::Tensor> tensors;
  tensors.reserve(fragments.size());
  for (const Fragment& fragment : fragments) {
    if (in)
      tensors.push_back({fragment.input, together, fragment.count});
    else
      tensors.push_back({together, fragment.output, fragment.count});
    together += fragment.count * item;
  }
  return tensors;
}

}  // namespace

std::byte* DeviceRoom::at_least(std::size_t nbytes) {
  if (nbytes > nbytes_) {
    release();
    const std::size_t larger = round_up(nbytes, std::max<std::size_t>(512, std::bit_ceil(nbytes) / 8));
    data_ = device_.borrow(larger);
    nbytes_ = larger;
  }
  return reinterpret_cast<std::byte*>(data_);
}

void DeviceRoom::release() noexcept {
  if (data_ != 0) device_.keep(data_, nbytes_, stream_);
  leak();
}

void Flow::begin(Call& call, const DeviceLocation& place, std::byte* room) {
  place.hold(stream);
  if (call.fragments.empty()) return;
  const std::size_t item = size_of(call.dtype);
  std::byte* const together = room ? room : room_.at_least(call.count * item);
  launcher.pack(tensors_of(call.fragments, together, item, true), call.dtype, stream);
  call.input = call.output = together;
}

void Flow::unpack(const Call& call, const std::vector<Fragment>& fragments) {
  if (fragments.empty()) return;
  launcher.pack(tensors_of(fragments, static_cast<std::byte*>(call.output), size_of(call.dtype), false), call.dtype,
                stream);
}

void Flow::finish(DeviceLocation& place) { place.finish(std::make_shared<const Event>(device.record(stream))); }

}  // namespace ringcomm
