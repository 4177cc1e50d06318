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

// A kernel's name, its module (of entries.inl, in arrays/device/kernels_MODULE.ptx.z), and the
// number of kernel elements per element: a complex sum is a sum of floats, two per element.
// Multiply the kernel's counts and first index by it.
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

// Returns the factors in the form for kernels of this dtype; for a cast, the dtype that scaling
// uses.
Scaling scaling_of(DType dtype, kernels::Scale by);
DType scaled_in(DType from, DType to);

struct Tensor {
  const void* source;
  void* destination;
  std::uint64_t count;  // in the kernel's elements
};
// Plans a launch for the first tensors (kMostTensors at most); returns their number. They are cut
// into equal chunks, about `blocks` for each round of all blocks. `size`: bytes of the narrower of
// the two elements.
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

// Returns the number of blocks, of kThreads threads, for a kernel that transfers that many bytes
// from each source. The result is at most `most`, a few per multiprocessor of the device.
inline constexpr unsigned kThreads = 256;
unsigned blocks_for(std::uint64_t nbytes, unsigned most);

}  // namespace ringcomm::gpu
