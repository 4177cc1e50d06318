// Defines each kernel's parameters: one struct, passed by value. The host's compiler and NVRTC,
// which has no host headers, both compile this file. Pointers are to device memory, aligned as C
// aligns the dtype (a complex number or a pair as its larger part).
#pragma once

namespace ringcomm::gpu {

// Computes x -> x * factor / divisor as in kernels.hpp. scaling_of (launch.hpp) makes it for one
// dtype: the host decides if a result is rounded once or twice.
enum ScaleMode : unsigned {
  kUnscaled,    // bits do not change
  kMultiplies,  // floating: multiplies by factor, a number of the dtype
  kDivides,     // floating: multiplies by factor, then divides by divisor
  kAsIntegers,  // integers: multiplies by factor unless it is 1, truncates and clamps, then divides by divisor
};
struct Scaling {
  double factor;
  long long divisor;
  unsigned mode;
  unsigned unused;
};

inline constexpr unsigned kMostThreads = 512;  // per block
inline constexpr unsigned kMostPointers = 64;

// Computes destinations[d][i] = post(pre(sources[0][i]) op pre(sources[1][i]) op ...) for i in
// [first, first + count), for every d. A destination may be a source.
struct ReduceParameters {
  const void* sources[kMostPointers];
  void* destinations[kMostPointers];
  unsigned long long first, count;
  Scaling pre, post;
  unsigned source_count, destination_count;
};

inline constexpr unsigned kMostTensors = 128;

// Computes destinations[t][i] = cast(scale(sources[t][i])) for i < counts[t], for every t. Tensors
// are cut into chunks of `chunk` elements; the last chunk of each tensor may be shorter. The chunks
// of tensor t are first_chunk[t] up to first_chunk[t + 1]. A block processes one chunk after
// another (plan_pack, launch.hpp). A tensor's destination may be its source if the dtypes are
// equal.
struct PackParameters {
  const void* sources[kMostTensors];
  void* destinations[kMostTensors];
  unsigned long long counts[kMostTensors];
  unsigned first_chunk[kMostTensors + 1];
  unsigned tensor_count;
  unsigned long long chunk;
  Scaling scaling;
};

// Fills memory with copies of an element. The pattern is 16 bytes of copies; the element's size
// must divide 16.
struct FillParameters {
  void* destination;
  unsigned long long nbytes;
  unsigned char pattern[16];
};

inline constexpr unsigned kMostDimensions = 40;  // with two elements each, more than fit in any memory

// Copies units of 1, 2, 4 or 8 bytes, in the order of the last dimension. Strides are in bytes.
struct StridedParameters {
  const void* source;
  void* destination;
  unsigned long long count;
  unsigned long long shape[kMostDimensions];
  long long source_strides[kMostDimensions], destination_strides[kMostDimensions];
  unsigned dimensions, unit;
};

static_assert(sizeof(Scaling) == 24 && sizeof(ReduceParameters) == 1096);
static_assert(sizeof(PackParameters) == 3624 && sizeof(FillParameters) == 32 && sizeof(StridedParameters) == 992);
static_assert(sizeof(PackParameters) <= 4096, "all that drivers before CUDA 12.1 take");

}  // namespace ringcomm::gpu
