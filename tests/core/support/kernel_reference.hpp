// A reference for the kernels: computes one element at a time, by different code. Elements are raw
// bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "kernels/kernels.hpp"

namespace reference {

using ringcomm::DType;
using ringcomm::Op;
using ringcomm::kernels::Scale;

struct Format {  // a floating dtype
  int mantissa, exponent;
  int bias() const { return (1 << (exponent - 1)) - 1; }
  std::uint64_t infinity() const { return ((std::uint64_t{1} << exponent) - 1) << mantissa; }
  std::uint64_t sign() const { return std::uint64_t{1} << (mantissa + exponent); }
  std::uint64_t quiet() const { return std::uint64_t{1} << (mantissa - 1); }
  bool is_nan(std::uint64_t bits) const { return (bits & (sign() - 1)) > infinity(); }
  std::uint64_t canonical_nan() const { return infinity() | quiet(); }
};

inline Format format_of(DType dtype) {
  constexpr Format formats[] = {{10, 5}, {7, 8}, {23, 8}, {52, 11}};
  return formats[static_cast<int>(dtype)];
}

// Returns the exact value of bits that are not a NaN.
inline double value_of(Format f, std::uint64_t bits) {
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << f.mantissa) - 1);
  const int exponent = static_cast<int>((bits & (f.sign() - 1)) >> f.mantissa);
  const double sign = (bits & f.sign()) != 0 ? -1.0 : 1.0;
  if ((bits & (f.sign() - 1)) == f.infinity()) return sign * std::numeric_limits<double>::infinity();
  const double whole = static_cast<double>(fraction | (exponent > 0 ? std::uint64_t{1} << f.mantissa : 0));
  return sign * std::ldexp(whole, (exponent > 0 ? exponent : 1) - f.bias() - f.mantissa);
}

// Returns the nearest number of the format, ties to even, by counting the format's steps.
inline std::uint64_t round_to(Format f, double value) {
  const std::uint64_t sign = std::signbit(value) ? f.sign() : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | f.infinity();
  const int least = 1 - f.bias();
  const int exponent = std::max(std::ilogb(magnitude), least);
  const double steps = std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent));
  // Steps continue across binades, as the bits do: 2^(mantissa+1) steps of one are 2^mantissa of
  // the next.
  const auto bits = static_cast<std::uint64_t>(steps) + (static_cast<std::uint64_t>(exponent - least) << f.mantissa);
  return sign | std::min(bits, f.infinity());
}

inline std::uint64_t cast(DType to, DType from, std::uint64_t bits) {
  const Format t = format_of(to), f = format_of(from);
  if (to == from || (from == DType::bfloat16 && to == DType::float32)) return bits << (to == from ? 0 : 16);
  if (!f.is_nan(bits)) return round_to(t, value_of(f, bits));
  const std::uint64_t payload = bits & ((std::uint64_t{1} << f.mantissa) - 1);
  const int shift = t.mantissa - f.mantissa;
  const std::uint64_t kept = shift >= 0 ? payload << shift : payload >> -shift;
  return ((bits & f.sign()) != 0 ? t.sign() : 0) | t.canonical_nan() | kept;
}

inline std::uint64_t mask_of(DType dtype) { return ~std::uint64_t{0} >> (64 - 8 * ringcomm::size_of(dtype)); }
inline bool is_signed(DType dtype) { return dtype >= DType::int8 && dtype <= DType::int64; }

inline __int128 integer_of(DType dtype, std::uint64_t bits) {
  const int unused = 64 - 8 * static_cast<int>(ringcomm::size_of(dtype));
  if (is_signed(dtype)) return static_cast<std::int64_t>(bits << unused) >> unused;
  return static_cast<__int128>(bits);
}

// Returns the extreme of two elements: a NaN if there is one (the first of two), otherwise by order
// with -0 < +0.
inline std::uint64_t extreme(DType dtype, bool want_least, std::uint64_t a, std::uint64_t b) {
  if (!ringcomm::info(dtype).floating) return (integer_of(dtype, a) <= integer_of(dtype, b)) == want_least ? a : b;
  const Format f = format_of(dtype);
  if (f.is_nan(a)) return a;
  if (f.is_nan(b)) return b;
  const double x = value_of(f, a), y = value_of(f, b);
  const bool a_first = x < y || (x == y && std::signbit(x) >= std::signbit(y));
  return a_first == want_least ? a : b;
}

template <class F>
F combine(Op op, F a, F b) {
  volatile F result = op == Op::product ? a * b : a + b;  // volatile: rounded here, not fused with later operations
  return result;
}

// Scales by the factor, then by the divisor; in one step if their quotient is exact in F.
template <class F>
F scaled(F value, Scale by) {
  const F ratio = static_cast<F>(by.factor / static_cast<double>(by.divisor));
  const bool exact = std::fma(static_cast<double>(ratio), static_cast<double>(by.divisor), -by.factor) == 0;
  volatile F product = value * (exact ? ratio : static_cast<F>(by.factor));
  volatile F result = exact ? product : product / static_cast<F>(by.divisor);
  return result;
}

// Reduces in F (float32 for 16-bit floats) values that may be scaled.
template <class F, class Bits>
std::uint64_t reduce_floating(DType dtype, Op op, std::span<const std::uint64_t> sources, Scale pre, Scale post) {
  constexpr DType wide = sizeof(F) == 4 ? DType::float32 : DType::float64;
  F sum{};
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const F value = scaled(std::bit_cast<F>(static_cast<Bits>(cast(wide, dtype, sources[s]))), pre);
    const auto bits = [](F x) { return static_cast<std::uint64_t>(std::bit_cast<Bits>(x)); };
    if (s == 0)
      sum = value;
    else if (op == Op::min || op == Op::max)
      sum = std::bit_cast<F>(static_cast<Bits>(extreme(wide, op == Op::min, bits(sum), bits(value))));
    else
      sum = combine(op, sum, value);
  }
  const F result = scaled(sum, post);
  if (result != result) return format_of(dtype).canonical_nan();
  return cast(dtype, wide, std::bit_cast<Bits>(result));
}

inline std::uint64_t scale_integer(DType dtype, std::uint64_t bits, Scale by) {
  __int128 value = integer_of(dtype, bits);
  const __int128 largest = static_cast<__int128>(mask_of(dtype) >> (is_signed(dtype) ? 1 : 0));
  const __int128 least = is_signed(dtype) ? -largest - 1 : 0;
  if (by.factor != 1.0) {
    const double product = std::trunc(static_cast<double>(value) * by.factor);
    if (std::isnan(product))
      value = 0;
    else if (product > static_cast<double>(largest))
      value = largest;
    else if (product < static_cast<double>(least))
      value = least;
    else
      value = std::min(static_cast<__int128>(product), largest);
  }
  return static_cast<std::uint64_t>(value / by.divisor) & mask_of(dtype);
}

inline std::uint64_t bitwise(Op op, std::span<const std::uint64_t> sources) {
  std::uint64_t result = sources[0];
  for (const std::uint64_t bits : sources.subspan(1))
    result = op == Op::band ? result & bits : op == Op::bor ? result | bits : result ^ bits;
  return result;
}

inline std::uint64_t logical(Op op, std::span<const std::uint64_t> sources) {
  const auto true_ones = static_cast<std::size_t>(
      std::count_if(sources.begin(), sources.end(), [](std::uint64_t bits) { return bits != 0; }));
  if (op == Op::land) return true_ones == sources.size() ? 1 : 0;
  return op == Op::lor ? (true_ones > 0 ? 1 : 0) : true_ones % 2;
}

// Returns post(pre(sources[0]) op pre(sources[1]) op ...), as defined in kernels.hpp.
inline std::uint64_t reduce(DType dtype, Op op, std::span<const std::uint64_t> sources, Scale pre = {},
                            Scale post = {}) {
  const bool plain = pre.identity() && post.identity();
  const bool ordering = op == Op::min || op == Op::max;
  if (dtype == DType::boolean) {
    std::size_t true_ones = 0;
    for (const std::uint64_t bits : sources) true_ones += bits != 0 ? 1 : 0;
    if (op == Op::min || op == Op::product || op == Op::band || op == Op::land)
      return true_ones == sources.size() ? 1 : 0;
    return op == Op::bxor || op == Op::lxor ? true_ones % 2 : true_ones > 0 ? 1 : 0;
  }
  if (plain && sources.size() == 1) return sources[0];
  if (op >= Op::land) return logical(op, sources);
  if (op >= Op::band) return bitwise(op, sources);
  if (ringcomm::info(dtype).floating && !(plain && ordering))
    return dtype == DType::float64 ? reduce_floating<double, std::uint64_t>(dtype, op, sources, pre, post)
                                   : reduce_floating<float, std::uint32_t>(dtype, op, sources, pre, post);
  const bool integer = !ringcomm::info(dtype).floating;
  const auto prepared = [&](std::uint64_t bits) { return integer ? scale_integer(dtype, bits, pre) : bits; };
  std::uint64_t sum = prepared(sources[0]);
  for (const std::uint64_t bits : sources.subspan(1)) {
    const std::uint64_t next = prepared(bits);
    if (ordering)
      sum = extreme(dtype, op == Op::min, sum, next);
    else
      sum = (op == Op::product ? sum * next : sum + next) & mask_of(dtype);
  }
  return integer ? scale_integer(dtype, sum, post) : sum;
}

}  // namespace reference
