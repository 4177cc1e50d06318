// Defines lanes. A lane converts elements of one dtype to accumulators and back, and applies
// operations to accumulators. These lanes compute the same as those of kernels/body/lanes.inl and
// pairs.cpp, one element at a time. An element consists of kUnits units in memory.
//  kScales      true if the dtype can be scaled
//  kArithmetic  true if a sum, a product or scaling may return a NaN, which is then made canonical
//  kWide        true if scaled elements are worth loading 16 bytes at a time; false for integers,
//                which need much code and are not gradients
#pragma once

#include "device/kernels/scalers.hpp"

namespace ringcomm::gpu {

enum class Kind { first, sum, min, max, product, both, either, one };

template <class UnitOf, class WideOf>
struct PlainLane {
  using Unit = UnitOf;
  using Wide = WideOf;
  using Scaler = NoScaler;
  static constexpr unsigned kUnits = 1;
  static constexpr bool kScales = false, kArithmetic = false, kWide = true, kKeepsOne = true;
  static RC_DEVICE Wide widen(const Unit* raw) { return bits_as<Wide>(*raw); }
  static RC_DEVICE void narrow(Unit* raw, Wide value) { *raw = bits_as<Unit>(value); }
  static RC_DEVICE Wide settle(Wide value) { return value; }
};

template <class F>
struct FloatLane : PlainLane<typename FloatBits<F>::Unsigned, F> {
  using Bits = typename FloatBits<F>::Signed;
  using Order = TotalOrder<Bits, FloatBits<F>::kInfinity>;
  using Scaler = FloatScaler<F>;
  static constexpr bool kScales = true, kArithmetic = true;
  static RC_DEVICE F settle(F value) { return canonical(value); }
  static RC_DEVICE F add(F a, F b) { return a + b; }
  static RC_DEVICE F multiply(F a, F b) { return a * b; }
  static RC_DEVICE F lower(F a, F b) { return bits_as<F>(Order::lower(bits_as<Bits>(a), bits_as<Bits>(b))); }
  static RC_DEVICE F upper(F a, F b) { return bits_as<F>(Order::upper(bits_as<Bits>(a), bits_as<Bits>(b))); }
};

// Halves stay float32 from the first source to the result.
template <class Half>
struct HalfLane : FloatLane<float> {
  using Unit = u16;
  static RC_DEVICE float widen(const u16* raw) { return Half::widen_number(*raw); }
  static RC_DEVICE float settle(float value) { return value; }  // narrow() makes NaNs canonical
  static RC_DEVICE void narrow(u16* raw, float value) {
    const u16 number = Half::narrow_number(value);
    *raw = value == value ? number : static_cast<u16>(Half::kNan);
  }
};

// Computes min and max of halves without scaling, and therefore without float32.
template <class Half>
struct HalfBitsLane : PlainLane<u16, i16> {
  using Order = TotalOrder<i16, Half::kInfinity>;
  static RC_DEVICE i16 lower(i16 a, i16 b) { return Order::lower(a, b); }
  static RC_DEVICE i16 upper(i16 a, i16 b) { return Order::upper(a, b); }
};

template <class T, class U>
struct IntegerLane : PlainLane<U, T> {  // U: unsigned T, in which sums and products wrap
  using Scaler = IntegerScaler<T, U>;
  static constexpr bool kScales = true, kWide = false;
  static RC_DEVICE T add(T a, T b) { return static_cast<T>(static_cast<U>(static_cast<u64>(a) + static_cast<u64>(b))); }
  static RC_DEVICE T multiply(T a, T b) {
    return static_cast<T>(static_cast<U>(static_cast<u64>(a) * static_cast<u64>(b)));
  }
  static RC_DEVICE T lower(T a, T b) { return a < b ? a : b; }
  static RC_DEVICE T upper(T a, T b) { return a > b ? a : b; }
};

template <class U>
struct BitsLane : PlainLane<U, U> {
  static RC_DEVICE U both(U a, U b) { return a & b; }
  static RC_DEVICE U either(U a, U b) { return a | b; }
  static RC_DEVICE U one(U a, U b) { return a ^ b; }
};

// A lane with accumulators 0 and 1; any nonzero number is true.
template <class U>
struct LogicalLane : BitsLane<U> {
  static RC_DEVICE U widen(const U* raw) { return *raw != 0 ? 1 : 0; }
};

// Booleans are stored as 0 or 1 even if there is a single source.
struct BooleanLane : LogicalLane<u8> {
  static constexpr bool kKeepsOne = false;
};

template <class F>
struct Complex {
  F real, imaginary;
};

// Computes products; sums and factors apply to each part separately.
template <class F>
struct ComplexLane : PlainLane<typename FloatBits<F>::Unsigned, Complex<F>> {
  using Unit = typename FloatBits<F>::Unsigned;
  using Wide = Complex<F>;
  static constexpr unsigned kUnits = 2;
  static constexpr bool kScales = true, kArithmetic = true;
  struct Scaler : FloatScaler<F> {
    using FloatScaler<F>::FloatScaler;
    RC_DEVICE Wide operator()(Wide value) const {
      return {FloatScaler<F>::operator()(value.real), FloatScaler<F>::operator()(value.imaginary)};
    }
  };
  static RC_DEVICE Wide widen(const Unit* raw) { return {bits_as<F>(raw[0]), bits_as<F>(raw[1])}; }
  static RC_DEVICE void narrow(Unit* raw, Wide value) {
    raw[0] = bits_as<Unit>(value.real);
    raw[1] = bits_as<Unit>(value.imaginary);
  }
  static RC_DEVICE Wide settle(Wide value) { return {canonical(value.real), canonical(value.imaginary)}; }
  static RC_DEVICE Wide multiply(Wide a, Wide b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.imaginary * b.real + a.real * b.imaginary};
  }
};

// A value and its index, each in the low bytes of a unit as wide as the larger of them. min and max
// are minloc and maxloc. Padding is written as zeros.
template <class Value, class Index>
struct Located {
  Value value;
  Index index;
  template <bool least>
  RC_DEVICE bool comes_before(const Located& other) const {  // NaNs are equal, and precede all numbers
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (nan || value == other.value) return index < other.index;
    return least ? value < other.value : value > other.value;
  }
};

template <class To, class Unit>
RC_DEVICE To low_bytes(Unit unit) {
  To result;
  copy_bytes<sizeof result>(&result, &unit);
  return result;
}
template <class Unit, class From>
RC_DEVICE Unit as_low_bytes(From value) {
  Unit unit = 0;
  copy_bytes<sizeof value>(&unit, &value);
  return unit;
}

template <class Value, class Index, class UnitOf>
struct LocatedLane : PlainLane<UnitOf, Located<Value, Index>> {
  using Wide = Located<Value, Index>;
  using Unit = UnitOf;
  static constexpr unsigned kUnits = 2;
  static_assert(sizeof(Unit) == (sizeof(Value) > sizeof(Index) ? sizeof(Value) : sizeof(Index)));
  static RC_DEVICE Wide widen(const Unit* raw) { return {low_bytes<Value>(raw[0]), low_bytes<Index>(raw[1])}; }
  static RC_DEVICE void narrow(Unit* raw, Wide pair) {
    raw[0] = as_low_bytes<Unit>(pair.value);
    raw[1] = as_low_bytes<Unit>(pair.index);
  }
  static RC_DEVICE Wide lower(Wide a, Wide b) { return b.template comes_before<true>(a) ? b : a; }
  static RC_DEVICE Wide upper(Wide a, Wide b) { return b.template comes_before<false>(a) ? b : a; }
};

// A lane that copies another lane's elements as bytes.
template <class Units, unsigned count>
struct Raw {
  Units units[count];
};
template <class Other>
struct BytesLane : PlainLane<typename Other::Unit, Raw<typename Other::Unit, Other::kUnits>> {
  using Unit = typename Other::Unit;
  using Wide = Raw<Unit, Other::kUnits>;
  static constexpr unsigned kUnits = Other::kUnits;
  static RC_DEVICE Wide widen(const Unit* raw) {
    Wide value;
    RC_UNROLL for (unsigned u = 0; u < kUnits; ++u) value.units[u] = raw[u];
    return value;
  }
  static RC_DEVICE void narrow(Unit* raw, Wide value) {
    RC_UNROLL for (unsigned u = 0; u < kUnits; ++u) raw[u] = value.units[u];
  }
};

template <class Lane, Kind kind>
RC_DEVICE typename Lane::Wide combine(typename Lane::Wide a, typename Lane::Wide b) {
  if constexpr (kind == Kind::first) return a;
  if constexpr (kind == Kind::sum) return Lane::add(a, b);
  if constexpr (kind == Kind::min) return Lane::lower(a, b);
  if constexpr (kind == Kind::max) return Lane::upper(a, b);
  if constexpr (kind == Kind::product) return Lane::multiply(a, b);
  if constexpr (kind == Kind::both) return Lane::both(a, b);
  if constexpr (kind == Kind::either) return Lane::either(a, b);
  if constexpr (kind == Kind::one) return Lane::one(a, b);
}

}  // namespace ringcomm::gpu
