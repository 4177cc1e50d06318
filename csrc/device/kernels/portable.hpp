// Defines the differences between the kernels' two forms: CUDA, and plain C++ for the tests' fake
// driver, which runs a grid thread by thread. Kernels use no shared memory, barriers or atomics, so
// both forms are equivalent.
#pragma once

#if defined(__CUDACC__)
#define RC_DEVICE __device__ __forceinline__
#define RC_UNROLL _Pragma("unroll")
#define RC_LOOP _Pragma("unroll 1")  // no unrolling: every machine's driver compiles this code, so it must be short
#else
#define RC_DEVICE inline
#define RC_UNROLL
#define RC_LOOP
#endif

namespace ringcomm::gpu {

using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);

// Position of a thread in its grid.
struct Place {
  u32 block, blocks, thread, threads;
  RC_DEVICE u64 index() const { return static_cast<u64>(block) * threads + thread; }
  RC_DEVICE u64 total() const { return static_cast<u64>(blocks) * threads; }
};

template <unsigned nbytes>
RC_DEVICE void copy_bytes(void* to, const void* from) {
#if defined(__CUDACC__)
  memcpy(to, from, nbytes);
#else
  __builtin_memcpy(to, from, nbytes);
#endif
}

template <class To, class From>
RC_DEVICE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  copy_bytes<sizeof result>(&result, &value);
  return result;
}

inline constexpr unsigned kPackBytes = 16;  // the widest load

}  // namespace ringcomm::gpu
