// Launches our kernels on a stream of a device. Routes use it for reductions, scaling, packing, and
// strided copies.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/call.hpp"
#include "device/device.hpp"
#include "device/kernels/launch.hpp"

namespace ringcomm {

class Launcher {
 public:
  explicit Launcher(Device& device) : device_(device), most_(kBlocksEach * device.processors()) {}

  // Reduces elements [part] of all sources, in their order, to all destinations.
  void reduce(std::span<const void* const> sources, std::span<void* const> destinations, Part part, DType dtype, Op op,
              const kernels::Scale& pre, const kernels::Scale& post, CuStream stream);
  void scale(void* data, std::size_t count, DType dtype, const kernels::Scale& by, CuStream stream);
  void pack(std::vector<gpu::Tensor> tensors, DType dtype, CuStream stream);
  void arrange(void* to, const void* from, std::span<const gpu::Dimension> dimensions, unsigned size, CuStream stream);

 private:
  static constexpr unsigned kBlocksEach = 4;
  void launch(const gpu::Entry& entry, void* parameters, unsigned blocks, CuStream stream);

  Device& device_;
  const unsigned most_;
};

}  // namespace ringcomm
