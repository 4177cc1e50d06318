// The host's side of a launch: which kernel, with what parameters, over how many blocks. No CUDA in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/scale.hpp"
#include "base/types.hpp"
#include "device/kernels/parameters.hpp"

namespace ringcomm::gpu {

// A kernel's name, the module that holds it (of entries.inl, in arrays/device/kernels_MODULE.ptx.z), and how many
// of the kernel's elements an element is: a complex sum is one of twice as many floats. The numbers of elements given
// to the kernel, and first, are to be multiplied by it.
struct Entry {
  std::string name;
  std::string_view module;
  unsigned parts = 1;
};

// Which reduces; asks for kernels::reduces(dtype, op). Op::average counts as sum, whose divisor is in `post`.
Entry reduce_entry(DType dtype, Op op);
// Which copies: any dtype to itself, floating ones to each other. Pairs are not scaled.
Entry pack_entry(DType from, DType to);
// Which does what kernels::scale does, with a PackParameters of one tensor: as pack_entry, but booleans become 0 or 1.
Entry scale_entry(DType dtype);
inline constexpr std::string_view kFillEntry = "rc_fill";  // in the module "fill"

// The factors as the kernels of this dtype take them; of a cast, the dtype that is scaled in.
Scaling scaling_of(DType dtype, kernels::Scale by);
DType scaled_in(DType from, DType to);

struct Tensor {
  const void* source;
  void* destination;
  std::uint64_t count;  // the kernel's elements
};
// The first of them (kMostTensors at most), cut into about `blocks` equal chunks for each time that all blocks take
// one; returns how many. `size`: the bytes of the narrower of the two elements.
unsigned plan_pack(PackParameters& parameters, std::span<const Tensor> tensors, unsigned size, unsigned blocks);

inline constexpr std::string_view kStridedModule = "strided", kStridedEntry = "rc_strided";
struct Dimension {
  std::uint64_t length;
  std::int64_t source, destination;  // bytes from one to the next
};
// For elements of `size` bytes. Dimensions that are one on both sides become one.
StridedParameters strided_parameters(const void* source, void* destination, std::span<const Dimension> dimensions,
                                     unsigned size);

FillParameters fill_parameters(void* destination, std::uint64_t count, const void* element, unsigned size);

// Blocks of kThreads threads for a kernel that moves so many bytes from each source; at most `most`, a few for each
// of the device's multiprocessors.
inline constexpr unsigned kThreads = 256;
unsigned blocks_for(std::uint64_t nbytes, unsigned most);

}  // namespace ringcomm::gpu
