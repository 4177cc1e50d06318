// Converts elements of one dtype to numbers and back, for copies with a cast
// (kernels/body/cast.inl) and a scale. Unlike in a reduction, a NaN keeps its sign and leading
// payload. Rounding occurs once.
//  kKeepsBits  true if a copy that neither casts nor scales preserves an element's bits
//  kWide       true if scaled elements are worth loading 16 bytes at a time
#pragma once

#include "device/kernels/scalers.hpp"

namespace ringcomm::gpu {

template <class UnitOf, class NumberOf>
struct PlainFormat {
  using Unit = UnitOf;
  using Number = NumberOf;
  static constexpr bool kKeepsBits = true, kWide = true;
  static RC_DEVICE Number read(Unit raw) { return bits_as<Number>(raw); }
  static RC_DEVICE Unit write(Number value) { return bits_as<Unit>(value); }
};

template <class Half>
struct HalfFormat : PlainFormat<u16, float> {
  static RC_DEVICE float read(u16 raw) { return Half::widen(raw); }
  static RC_DEVICE u16 write(float value) { return Half::narrow(value); }
  static RC_DEVICE u16 write(double value) { return Half::narrow(round_to_odd(value)); }
};
struct SingleFormat : PlainFormat<u32, float> {
  using PlainFormat::write;
  static RC_DEVICE u32 write(double value) { return bits_as<u32>(to_float(value)); }
};
using DoubleFormat = PlainFormat<u64, double>;

template <class T, class U>
struct IntegerFormat : PlainFormat<U, T> {
  static constexpr bool kWide = false;
};
struct BooleanFormat : PlainFormat<u8, u8> {
  static constexpr bool kKeepsBits = false;
  static RC_DEVICE u8 read(u8 raw) { return raw != 0 ? 1 : 0; }
};

// Selects the type in which a conversion scales: the wider of the two. Integers are not converted
// to other types.
template <class From, class To>
struct Meeting {
  using Number = From;
};
template <>
struct Meeting<float, double> {
  using Number = double;
};
RC_DEVICE float meet(float value, float) { return value; }
RC_DEVICE double meet(double value, double) { return value; }
RC_DEVICE double meet(float value, double) { return to_double(value); }
template <class T>
RC_DEVICE T meet(T value, T) {
  return value;
}

// Scales a number. Results of floating arithmetic are made canonical.
template <class Number, class Unit>
struct NumberScaler : IntegerScaler<Number, Unit> {
  using IntegerScaler<Number, Unit>::IntegerScaler;
};
template <class F>
struct SettlingScaler : FloatScaler<F> {
  using FloatScaler<F>::FloatScaler;
  RC_DEVICE F operator()(F value) const { return canonical(FloatScaler<F>::operator()(value)); }
};
template <class Unit>
struct NumberScaler<float, Unit> : SettlingScaler<float> {
  using SettlingScaler<float>::SettlingScaler;
};
template <class Unit>
struct NumberScaler<double, Unit> : SettlingScaler<double> {
  using SettlingScaler<double>::SettlingScaler;
};

// Converts one element.
template <class From, class To, bool scaled>
struct Conversion {
  using Number = typename Meeting<typename From::Number, typename To::Number>::Number;
  NumberScaler<Number, typename From::Unit> scale;
  RC_DEVICE explicit Conversion(const Scaling& by) : scale(by) {}
  RC_DEVICE typename To::Unit operator()(typename From::Unit raw) const {
    const Number value = meet(From::read(raw), Number{});
    return To::write(scaled ? scale(value) : value);
  }
};
template <class Same>
struct Conversion<Same, Same, false> {
  RC_DEVICE explicit Conversion(const Scaling&) {}
  RC_DEVICE typename Same::Unit operator()(typename Same::Unit raw) const { return raw; }
};
template <>
struct Conversion<BooleanFormat, BooleanFormat, true> {  // scaling does not change a boolean
  RC_DEVICE explicit Conversion(const Scaling&) {}
  RC_DEVICE u8 operator()(u8 raw) const { return BooleanFormat::read(raw); }
};

}  // namespace ringcomm::gpu
