// Converts floating formats: halves to and from float32, float64 to float32, NaNs. Results have the
// same bits as the CPU's kernels (kernels/body/halves.inl, cast.inl) and F16C. Rounding is to
// nearest, ties to even, and subnormal numbers are kept. A NaN becomes quiet, and keeps its sign
// and the payload bits that fit.
#pragma once

#include "device/kernels/portable.hpp"

namespace ringcomm::gpu {

template <class F>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Unsigned = u32;
  using Signed = i32;
  static constexpr i32 kInfinity = 0x7F800000, kNan = 0x7FC00000;
};
template <>
struct FloatBits<double> {
  using Unsigned = u64;
  using Signed = i64;
  static constexpr i64 kInfinity = 0x7FF0000000000000, kNan = 0x7FF8000000000000;
};

// Replaces every NaN of arithmetic by one: positive and quiet, without payload.
template <class F>
RC_DEVICE F canonical(F value) {
  return value == value ? value : bits_as<F>(FloatBits<F>::kNan);
}

// Keeps a NaN's payload. A device's conversion instructions return the same NaN for all. Both
// results are computed before one is selected, without branches.
RC_DEVICE float nan_to_float(double nan) {
  const u64 bits = bits_as<u64>(nan);
  return bits_as<float>(static_cast<u32>(bits >> 32 & 0x80000000u) | 0x7FC00000u |
                        static_cast<u32>(bits >> 29 & 0x3FFFFFu));
}
RC_DEVICE float to_float(double value) {
  const float number = static_cast<float>(value), nan = nan_to_float(value);
  return value == value ? number : nan;
}
RC_DEVICE double to_double(float value) {
  const u64 bits = bits_as<u32>(value);
  const double number = static_cast<double>(value);
  const double nan = bits_as<double>((bits & 0x80000000u) << 32 | 0x7FF8000000000000u | (bits & 0x3FFFFFu) << 29);
  return value == value ? number : nan;
}

// Rounds float64 to odd, on the way to a half: truncates, then sets the last bit if inexact
// (cast.inl).
RC_DEVICE float round_to_odd(double value) {
  const float nearest = static_cast<float>(value), nan = nan_to_float(value);
  const u64 was = bits_as<u64>(value) << 1, is = bits_as<u64>(static_cast<double>(nearest)) << 1;  // without sign
  const u32 bits = bits_as<u32>(nearest);
  const float odd = bits_as<float>((is > was ? bits - 1 : bits) | (is != was ? 1u : 0u));
  return value == value ? odd : nan;
}

// Conversions of a half. *_number: for numbers; a NaN becomes an unspecified NaN.
struct Float16 {
  static constexpr i16 kInfinity = 0x7C00, kNan = 0x7E00;
  static RC_DEVICE float widen_number(u16 half) {
#if defined(__CUDACC__)
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
    return wide;
#else
    const u32 magnitude = half & 0x7FFFu, sign = (half & 0x8000u) << 16;
    u32 bits = (magnitude << 13) + (112u << 23);  // exponent bias 15 becomes 127
    if (magnitude < 0x0400) bits = bits_as<u32>(static_cast<float>(magnitude) * 0x1p-24f);
    if (magnitude >= 0x7C00) bits = magnitude << 13 | 0x7F800000u;
    return bits_as<float>(bits | sign);
#endif
  }
  static RC_DEVICE u16 narrow_number(float wide) {
#if defined(__CUDACC__)
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(wide));
    return half;
#else
    const u32 bits = bits_as<u32>(wide), magnitude = bits & 0x7FFFFFFFu;
    u32 half = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    // Below 2^-14 the unit in the last place of 0.5 + x is float16's smallest step, so the addition
    // rounds.
    if (magnitude < 0x38800000u) half = bits_as<u32>(bits_as<float>(magnitude) + 0.5f) - 0x3F000000u;
    if (magnitude >= 0x477FF000u) half = 0x7C00u;  // 65520 and above
    return static_cast<u16>(half | (bits >> 16 & 0x8000u));
#endif
  }
  static RC_DEVICE float widen(u16 half) {
    const float number = widen_number(half);
    const u32 quiet = (half & 0x8000u) << 16 | 0x7FC00000u | (half & 0x7FFFu) << 13;
    return (half & 0x7FFFu) > 0x7C00u ? bits_as<float>(quiet) : number;
  }
  static RC_DEVICE u16 narrow(float wide) {
    const u32 bits = bits_as<u32>(wide);
    const u16 number = narrow_number(wide),
              quiet = static_cast<u16>((bits >> 16 & 0x8000u) | 0x7E00u | (bits >> 13 & 0x3FFu));
    return wide == wide ? number : quiet;
  }
};

struct BFloat16 {
  static constexpr i16 kInfinity = 0x7F80, kNan = 0x7FC0;
  static RC_DEVICE float widen_number(u16 half) { return bits_as<float>(static_cast<u32>(half) << 16); }
  static RC_DEVICE u16 narrow_number(float wide) {
    const u32 bits = bits_as<u32>(wide);
    return static_cast<u16>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
  static RC_DEVICE float widen(u16 half) { return widen_number(half); }
  static RC_DEVICE u16 narrow(float wide) {
    const u16 number = narrow_number(wide), quiet = static_cast<u16>(bits_as<u32>(wide) >> 16 | 0x40u);
    return wide == wide ? number : quiet;
  }
};

// Computes min and max of the bits as integers, in a total order: -0 < +0. A NaN wins; of two NaNs
// the first one wins.
template <class I, I infinity>
struct TotalOrder {
  static constexpr I kMagnitude = static_cast<I>(~(static_cast<u64>(1) << (8 * sizeof(I) - 1)));
  static RC_DEVICE I key(I bits) { return bits < 0 ? static_cast<I>(bits ^ kMagnitude) : bits; }
  static RC_DEVICE bool is_nan(I bits) { return (bits & kMagnitude) > infinity; }
  static RC_DEVICE I lower(I a, I b) { return is_nan(a) || (!is_nan(b) && key(a) <= key(b)) ? a : b; }
  static RC_DEVICE I upper(I a, I b) { return is_nan(a) || (!is_nan(b) && key(a) >= key(b)) ? a : b; }
};

}  // namespace ringcomm::gpu
