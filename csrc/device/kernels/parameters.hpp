// What each kernel takes: one struct, by value, the same for the host, CUDA (NVRTC: no headers of the host's) and C++.
// Pointers are of device memory, aligned as C aligns the dtype (a complex number or a pair as its larger part).
#pragma once

namespace ringcomm::gpu {

// x -> x * factor / divisor as kernels.hpp says, made by scaling_of (launch.hpp) for one dtype: what is rounded once
// and what twice is decided on the host.
enum ScaleMode : unsigned {
  kUnscaled,    // bits stay as they are
  kMultiplies,  // floating: by factor alone, a number of the dtype
  kDivides,     // floating: by factor, then by divisor
  kAsIntegers,  // integers: by factor unless it is 1, cut off and held to the range, then by divisor
};
struct Scaling {
  double factor;
  long long divisor;
  unsigned mode;
  unsigned unused;
};

inline constexpr unsigned kMostThreads = 512;  // of a block
inline constexpr unsigned kMostPointers = 64;

// destinations[d][i] = post(pre(sources[0][i]) op pre(sources[1][i]) op ...) for i in [first, first + count), for every
// d. A destination may be a source.
struct ReduceParameters {
  const void* sources[kMostPointers];
  void* destinations[kMostPointers];
  unsigned long long first, count;
  Scaling pre, post;
  unsigned source_count, destination_count;
};

inline constexpr unsigned kMostTensors = 128;

// destinations[t][i] = cast(scale(sources[t][i])) for i < counts[t], for every t. Tensors are cut into chunks of
// `chunk` elements, the last of each shorter; those of tensor t are first_chunk[t] up to first_chunk[t + 1], and a
// block takes one chunk after another (plan_pack, launch.hpp). A tensor's destination may be its source if dtypes are
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

// The bytes of an element over and over: pattern holds as many as fill 16 bytes, of which 16 must be a multiple.
struct FillParameters {
  void* destination;
  unsigned long long nbytes;
  unsigned char pattern[16];
};

inline constexpr unsigned kMostDimensions = 40;  // of two elements each: more than fit in any memory

// Units of 1, 2, 4 or 8 bytes, in the order of the last dimension; strides are of bytes.
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
