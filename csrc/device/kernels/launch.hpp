// Prepares launches on the host: the kernel, its parameters, and the number of blocks. It does not
// use CUDA.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/scale.hpp"
#include "base/types.hpp"
#include "device/kernels/parameters.hpp"

namespace ringcomm::gpu {

// A kernel's name, and its module (of entries.inl, in arrays/device/kernels_MODULE.ptx.z). `parts`:
// number of the kernel's elements per element of the dtype; 2 for a complex sum, which sums floats.
// The kernel's counts and first index must be multiplied by it.
struct Entry {
  std::string name;
  std::string_view module;
  unsigned parts = 1;
};

// Returns the kernel that reduces; requires kernels::reduces(dtype, op). Op::average is a sum with
// a divisor in `post`.
Entry reduce_entry(DType dtype, Op op);
// Returns the kernel that copies: any dtype to itself, floating ones to each other. Pairs are not
// scaled.
Entry pack_entry(DType from, DType to);
// Returns the kernel that computes kernels::scale, with a PackParameters of one tensor. It is like
// pack_entry, but booleans become 0 or 1.
Entry scale_entry(DType dtype);
inline constexpr std::string_view kFillEntry = "rc_fill";  // in module "fill"

// scaling_of() returns the factors in the form that the dtype's kernels use. scaled_in() returns
// the dtype in which a cast scales.
Scaling scaling_of(DType dtype, kernels::Scale by);
DType scaled_in(DType from, DType to);

struct Tensor {
  const void* source;
  void* destination;
  std::uint64_t count;  // in the kernel's elements
};
// Plans a launch for the first tensors (kMostTensors at most); returns their number. Tensors are
// cut into equal chunks; the number of chunks is close to a multiple of `blocks`. `size`: bytes of
// the narrower of the two elements.
unsigned plan_pack(PackParameters& parameters, std::span<const Tensor> tensors, unsigned size, unsigned blocks);

inline constexpr std::string_view kStridedModule = "strided", kStridedEntry = "rc_strided";
struct Dimension {
  std::uint64_t length;
  std::int64_t source, destination;  // stride in bytes
};
// Returns the parameters for elements of `size` bytes. Dimensions that are contiguous on both sides
// are merged.
StridedParameters strided_parameters(const void* source, void* destination, std::span<const Dimension> dimensions,
                                     unsigned size);

FillParameters fill_parameters(void* destination, std::uint64_t count, const void* element, unsigned size);

// Returns the number of blocks, of kThreads threads, for a kernel that reads `nbytes` from each
// source. The result is at most `most`, a few per multiprocessor of the device.
inline constexpr unsigned kThreads = 256;
unsigned blocks_for(std::uint64_t nbytes, unsigned most);

}  // namespace ringcomm::gpu
