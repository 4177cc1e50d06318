// Computes x -> x * factor / divisor, as kernels/body/lanes.inl does with vectors.
#pragma once

#include "device/kernels/floats.hpp"
#include "device/kernels/parameters.hpp"

namespace ringcomm::gpu {

struct NoScaler {
  RC_DEVICE explicit NoScaler(const Scaling&) {}
  template <class T>
  RC_DEVICE T operator()(T value) const {
    return value;
  }
};

template <class F>
struct FloatScaler {
  F factor, divisor;
  unsigned mode;
  RC_DEVICE explicit FloatScaler(const Scaling& by)
      : factor(static_cast<F>(by.factor)), divisor(static_cast<F>(by.divisor)), mode(by.mode) {}
  RC_DEVICE F operator()(F value) const {
    if (mode == kUnscaled) return value;
    const F product = value * factor;
    return mode == kDivides ? product / divisor : product;
  }
};

template <class T, class U>
struct IntegerScaler {  // U: unsigned T
  static constexpr bool kSigned = static_cast<T>(-1) < T{0};
  static constexpr double kEnd = static_cast<double>(static_cast<u64>(1) << (8 * sizeof(T) - 1)) * (kSigned ? 1 : 2);
  double factor;
  i64 divisor;
  RC_DEVICE explicit IntegerScaler(const Scaling& by) : factor(by.factor), divisor(by.divisor) {}

  static RC_DEVICE T truncate(double value) {  // clamps to the range; NaN gives 0
    if (!(value == value)) return 0;
    if (value >= kEnd) return static_cast<T>(static_cast<U>(~U{0}) >> (kSigned ? 1 : 0));
    if (kSigned && value <= -kEnd) return static_cast<T>(static_cast<u64>(1) << (8 * sizeof(T) - 1));
    if (!kSigned && value <= 0.0) return 0;
    return static_cast<T>(value);
  }
  RC_DEVICE T divide(T value) const {
    if constexpr (sizeof(T) == 8) {
      return value / static_cast<T>(divisor);
    } else {  // unsigned words: devices divide them faster
      if (divisor > 0xFFFFFFFFll) return 0;
      const bool negative = kSigned && value < T{1} && value != 0;
      const u32 magnitude = negative ? 0u - static_cast<u32>(value) : static_cast<u32>(value);
      const u32 quotient = magnitude / static_cast<u32>(divisor);
      return static_cast<T>(negative ? 0u - quotient : quotient);
    }
  }
  RC_DEVICE T operator()(T value) const {
    if (factor != 1.0) value = truncate(static_cast<double>(value) * factor);
    return divisor == 1 ? value : divide(value);
  }
};

}  // namespace ringcomm::gpu
