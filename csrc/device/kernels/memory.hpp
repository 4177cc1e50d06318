// Loads and stores device memory: 16 bytes at a time, or an element's unit.
#pragma once

#include "device/kernels/portable.hpp"

namespace ringcomm::gpu {

#if defined(__CUDACC__)
// Uses assembly, so that the compiler knows that accesses are to global memory. The assembly is
// volatile, so that accesses keep their order. A thread loads everything it needs before its first
// store, because destinations may be sources.
RC_DEVICE u64 address(const void* pointer) { return __cvta_generic_to_global(pointer); }

RC_DEVICE void load_pack(void* to, u64 from) {
  uint4 pack;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(pack.x), "=r"(pack.y), "=r"(pack.z), "=r"(pack.w)
               : "l"(from));
  copy_bytes<kPackBytes>(to, &pack);
}
RC_DEVICE void store_pack(u64 to, const void* from) {
  uint4 pack;
  copy_bytes<kPackBytes>(&pack, from);
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(pack.x), "r"(pack.y), "r"(pack.z), "r"(pack.w)
               : "memory");
}
RC_DEVICE void load_unit(u8& to, u64 from) {
  u32 wide;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(wide) : "l"(from));
  to = static_cast<u8>(wide);
}
RC_DEVICE void load_unit(u16& to, u64 from) { asm volatile("ld.global.u16 %0, [%1];" : "=h"(to) : "l"(from)); }
RC_DEVICE void load_unit(u32& to, u64 from) { asm volatile("ld.global.u32 %0, [%1];" : "=r"(to) : "l"(from)); }
RC_DEVICE void load_unit(u64& to, u64 from) { asm volatile("ld.global.u64 %0, [%1];" : "=l"(to) : "l"(from)); }
RC_DEVICE void store_unit(u64 to, u8 value) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(static_cast<u32>(value)) : "memory");
}
RC_DEVICE void store_unit(u64 to, u16 value) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(value) : "memory");
}
RC_DEVICE void store_unit(u64 to, u32 value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
RC_DEVICE void store_unit(u64 to, u64 value) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
#else
RC_DEVICE u64 address(const void* pointer) { return reinterpret_cast<u64>(pointer); }

// Unaligned accesses fail on a device, and so they fail here.
template <unsigned nbytes>
inline void check_aligned(u64 place) {
  if (place % nbytes != 0) __builtin_trap();
}
inline void load_pack(void* to, u64 from) {
  check_aligned<kPackBytes>(from);
  copy_bytes<kPackBytes>(to, reinterpret_cast<const void*>(from));
}
inline void store_pack(u64 to, const void* from) {
  check_aligned<kPackBytes>(to);
  copy_bytes<kPackBytes>(reinterpret_cast<void*>(to), from);
}
template <class Unit>
void load_unit(Unit& to, u64 from) {
  check_aligned<sizeof(Unit)>(from);
  copy_bytes<sizeof(Unit)>(&to, reinterpret_cast<const void*>(from));
}
template <class Unit>
void store_unit(u64 to, Unit value) {
  check_aligned<sizeof(Unit)>(to);
  copy_bytes<sizeof(Unit)>(reinterpret_cast<void*>(to), &value);
}
#endif

// Loads or stores `units` units, in packs if they are aligned to packs.
template <bool packed, unsigned units, class Unit>
RC_DEVICE void load(Unit* to, u64 from) {
  if constexpr (packed) {
    static_assert(units * sizeof(Unit) % kPackBytes == 0);
    RC_UNROLL for (unsigned at = 0; at < units; at += kPackBytes / sizeof(Unit))
        load_pack(to + at, from + at * sizeof(Unit));
  } else {
    RC_UNROLL for (unsigned at = 0; at < units; ++at) load_unit(to[at], from + at * sizeof(Unit));
  }
}

template <bool packed, unsigned units, class Unit>
RC_DEVICE void store(u64 to, const Unit* from) {
  if constexpr (packed) {
    RC_UNROLL for (unsigned at = 0; at < units; at += kPackBytes / sizeof(Unit))
        store_pack(to + at * sizeof(Unit), from + at);
  } else {
    RC_UNROLL for (unsigned at = 0; at < units; ++at) store_unit(to + at * sizeof(Unit), from[at]);
  }
}

// Division of a range of elements for packs: single elements up to an aligned address, packs,
// single elements.
struct Cut {
  u64 head, packs;  // number of elements; number of packs

  // `start`: address of the first element; `size`: an element's bytes; `wide`: elements in a pack.
  static RC_DEVICE Cut nowhere(u64 count) { return {count, 0}; }
  static RC_DEVICE Cut at(u64 start, u32 size, u32 wide, u64 count) {
    const u32 missing = static_cast<u32>(-start) % kPackBytes;
    const u64 head = missing / size;
    if (missing % size != 0 || head >= count) return nowhere(count);
    return {head, (count - head) / wide};
  }
};

}  // namespace ringcomm::gpu
