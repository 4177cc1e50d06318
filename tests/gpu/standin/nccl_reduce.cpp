// Implements nccl_reduce.hpp: conversions, reductions and scaling in every data type of NCCL.
#include "nccl_reduce.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace standin {
namespace {

std::uint16_t round_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (size >= 65520.0F) return sign | 0x7c00;
  // Adding and subtracting a power of two rounds to a multiple of the last place, ties to even.
  const int exponent = std::max(size == 0 ? -14 : std::ilogb(size), -14);
  const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (steps + (static_cast<unsigned>(exponent + 14) << 10)));
}

float widen_half(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  float size = std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa + 1024), std::max(exponent, 1) - 25);
  if (exponent == 31) size = mantissa == 0 ? INFINITY : NAN;
  return (half & 0x8000) != 0 ? -size : size;
}

std::uint16_t round_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Stored, class Wide, auto widen, auto narrow>
struct As {
  using stored = Stored;
  using wide = Wide;
  static Wide get(Stored x) { return widen(x); }
  static Stored put(Wide x) { return narrow(x); }
};
template <class T>
struct Plain {
  using stored = T;
  using wide = T;
  static T get(T x) { return x; }
  static T put(T x) { return x; }
};
using Half = As<std::uint16_t, float, widen_half, round_half>;
struct Bfloat {
  using stored = std::uint16_t;
  using wide = float;
  static float get(stored x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }
  static stored put(float x) { return round_bfloat(x); }
};

template <class Work>
auto with_type(ncclDataType_t type, Work work) {
  switch (type) {
    case ncclInt8:
      return work(Plain<std::int8_t>{});
    case ncclUint8:
      return work(Plain<std::uint8_t>{});
    case ncclInt32:
      return work(Plain<std::int32_t>{});
    case ncclUint32:
      return work(Plain<std::uint32_t>{});
    case ncclInt64:
      return work(Plain<std::int64_t>{});
    case ncclUint64:
      return work(Plain<std::uint64_t>{});
    case ncclFloat16:
      return work(Half{});
    case ncclFloat32:
      return work(Plain<float>{});
    case ncclFloat64:
      return work(Plain<double>{});
    default:
      return work(Bfloat{});
  }
}

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
  if (op == ncclProd) return static_cast<T>(a * b);
  if (op == ncclMax) return a < b || b != b ? b : a;
  if (op == ncclMin) return b < a || b != b ? b : a;
  return static_cast<T>(a + b);
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  return with_type(type, [](auto as) { return sizeof(typename decltype(as)::stored); });
}

void reduce(ncclDataType_t type, ncclRedOp_t op, void* into, const void* from, std::size_t count) {
  with_type(type, [=](auto as) {
    using As = decltype(as);
    auto* const out = static_cast<typename As::stored*>(into);
    const auto* const in = static_cast<const typename As::stored*>(from);
    for (std::size_t i = 0; i < count; ++i) out[i] = As::put(combine(op, As::get(out[i]), As::get(in[i])));
  });
}

void scale(ncclDataType_t type, void* values, std::size_t count, double factor) {
  with_type(type, [=](auto as) {
    using As = decltype(as);
    using Wide = typename As::wide;
    auto* const out = static_cast<typename As::stored*>(values);
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (std::is_integral_v<Wide>) {
        out[i] = static_cast<Wide>(static_cast<long double>(out[i]) * factor);
      } else {
        out[i] = As::put(As::get(out[i]) * static_cast<Wide>(factor));
      }
    }
  });
}

double read_scalar(ncclDataType_t type, const void* value) {
  return with_type(type, [=](auto as) {
    using As = decltype(as);
    return static_cast<double>(As::get(*static_cast<const typename As::stored*>(value)));
  });
}

}  // namespace standin
