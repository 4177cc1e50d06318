// Compiles the kernels as CUDA; build_ptx.py compiles this file once for each module of
// entries.inl.
#include "device/kernels/fill.hpp"
#include "device/kernels/pack.hpp"
#include "device/kernels/reduce.hpp"
#include "device/kernels/strided.hpp"

using namespace ringcomm::gpu;

// __grid_constant__: parameters stay in constant memory; threads do not copy them.
#define RC_KERNEL(name, Parameters, body)                                                                 \
  extern "C" __global__ void __launch_bounds__(kMostThreads) name(const __grid_constant__ Parameters p) { \
    body(p, Place{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x});                                       \
  }
#include "device/kernels/entries.inl"
