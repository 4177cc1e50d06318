// Defines lanes. A lane converts elements of one dtype to accumulators and back, and applies
// operations to accumulators.

// Computes min and max of floating numbers as integers, in a total order: -0 < +0. A NaN wins; of
// two NaNs the first one wins.
template <class I, std::size_t N, I infinity>
struct TotalOrder {
  using V = Vector<I, N>;
  static constexpr I kMagnitude = static_cast<I>(~(I{1} << (8 * sizeof(I) - 1)));
  static INLINE V key(V bits) { return bits ^ ((bits < 0) & kMagnitude); }
  static INLINE V is_nan(V bits) { return (bits & kMagnitude) > infinity; }
  static INLINE V lower(V a, V b) { return (is_nan(a) | (~is_nan(b) & (key(a) <= key(b)))) != 0 ? a : b; }
  static INLINE V upper(V a, V b) { return (is_nan(a) | (~is_nan(b) & (key(a) >= key(b)))) != 0 ? a : b; }
};

template <class F>
struct FloatTraits;
template <>
struct FloatTraits<float> {
  using Bits = std::int32_t;
  static constexpr Bits kInfinity = 0x7F800000, kNan = 0x7FC00000;
};
template <>
struct FloatTraits<double> {
  using Bits = std::int64_t;
  static constexpr Bits kInfinity = 0x7FF0000000000000, kNan = 0x7FF8000000000000;
};

template <class F>
struct FloatLane {
  static constexpr std::size_t kWidth = kVectorBytes / sizeof(F), kSize = sizeof(F);
  static constexpr bool kHot = true;  // gradients: passes of two sources have separate code
  using Bits = typename FloatTraits<F>::Bits;
  using BitVector = Vector<Bits, kWidth>;
  using Wide = Vector<F, kWidth>;
  using Raw = Wide;
  using Order = TotalOrder<Bits, kWidth, FloatTraits<F>::kInfinity>;

  static INLINE Wide widen(Raw raw) { return raw; }
  static INLINE Raw narrow(Wide wide) { return wide; }
  static INLINE Wide add(Wide a, Wide b) { return a + b; }
  static INLINE Wide multiply(Wide a, Wide b) { return a * b; }
  static INLINE Wide lower(Wide a, Wide b) {
    return bits_as<Wide>(Order::lower(bits_as<BitVector>(a), bits_as<BitVector>(b)));
  }
  static INLINE Wide upper(Wide a, Wide b) {
    return bits_as<Wide>(Order::upper(bits_as<BitVector>(a), bits_as<BitVector>(b)));
  }
  // The NaN that an addition of two NaNs returns, and the sign of a new NaN, differ between
  // machines and compilers. So arithmetic results use one NaN: positive and quiet, without payload.
  static INLINE Wide canonical(Wide value) {
    return value == value ? value : bits_as<Wide>(BitVector{} + FloatTraits<F>::kNan);
  }

  // If F represents factor / divisor exactly, the scaler is one product, exact before it is
  // rounded. That holds for a divisor that is a power of two, or a factor that is a multiple of the
  // divisor. Otherwise it divides, because a product with a rounded 1 / divisor may miss the
  // quotient's last bit. Memory bandwidth limits passes, so vector divisions cost no time.
  struct Scaler {
    F factor, divisor;
    bool divides;
    explicit Scaler(const Scale& by) : divisor(static_cast<F>(by.divisor)) {
      const auto whole = static_cast<double>(by.divisor);
      const F ratio = static_cast<F>(by.factor / whole);
      divides = by.divisor != 1 && __builtin_fma(static_cast<double>(ratio), whole, -by.factor) != 0.0;
      factor = divides ? static_cast<F>(by.factor) : ratio;
    }
    INLINE Wide operator()(Wide value) const { return divides ? value * factor / divisor : value * factor; }
  };
};

// Computes sum, product and scaled min and max of halves: two float32 vectors per vector of halves.
template <class Half>
struct HalfLane {
  static constexpr std::size_t kWidth = kVectorBytes / 2, kSize = 2;
  static constexpr bool kHot = true;
  using Single = FloatLane<float>;
  using Wide = FloatPair;
  using Raw = typename Half::Raw;
  static INLINE Wide widen(Raw raw) { return Half::widen_pair(raw); }
  static INLINE Raw narrow(Wide wide) { return Half::narrow_pair(wide); }
  static INLINE Wide add(Wide x, Wide y) { return {x.a + y.a, x.b + y.b}; }
  static INLINE Wide multiply(Wide x, Wide y) { return {x.a * y.a, x.b * y.b}; }
  static INLINE Wide lower(Wide x, Wide y) { return {Single::lower(x.a, y.a), Single::lower(x.b, y.b)}; }
  static INLINE Wide upper(Wide x, Wide y) { return {Single::upper(x.a, y.a), Single::upper(x.b, y.b)}; }
  static INLINE Wide canonical(Wide x) { return {Single::canonical(x.a), Single::canonical(x.b)}; }

  struct Scaler : Single::Scaler {
    using Single::Scaler::Scaler;
    INLINE Wide operator()(Wide x) const { return {Single::Scaler::operator()(x.a), Single::Scaler::operator()(x.b)}; }
  };
};

struct NoScaler {
  explicit NoScaler(const Scale&) {}
  template <class V>
  INLINE V operator()(V value) const { return value; }
};

// A lane with accumulators in the format of memory.
template <class T>
struct PlainLane {
  static constexpr std::size_t kWidth = kVectorBytes / sizeof(T), kSize = sizeof(T);
  static constexpr bool kHot = false;
  using Wide = Vector<T, kWidth>;
  using Raw = Wide;
  using Scaler = NoScaler;
  static INLINE Wide widen(Raw raw) { return raw; }
  static INLINE Raw narrow(Wide wide) { return wide; }
  static INLINE Wide canonical(Wide value) { return value; }
};

// Operates bit by bit, on any dtype.
using BitsLane = PlainLane<std::uint8_t>;

// Computes min and max of halves without scaling, and therefore without float32.
template <class Half>
struct HalfBitsLane : PlainLane<std::int16_t>, TotalOrder<std::int16_t, kVectorBytes / 2, Half::kInfinity> {
  static constexpr bool kHot = true;
};

template <class T, class U>
struct IntegerLane : PlainLane<T> {  // U: unsigned T, in which sums and products wrap
  using PlainLane<T>::kWidth;
  using typename PlainLane<T>::Wide;
  using Unsigned = Vector<U, kWidth>;
  static INLINE Wide add(Wide a, Wide b) { return bits_as<Wide>(bits_as<Unsigned>(a) + bits_as<Unsigned>(b)); }
  static INLINE Wide multiply(Wide a, Wide b) { return bits_as<Wide>(bits_as<Unsigned>(a) * bits_as<Unsigned>(b)); }
  static INLINE Wide lower(Wide a, Wide b) { return a < b ? a : b; }
  static INLINE Wide upper(Wide a, Wide b) { return a > b ? a : b; }

  struct Scaler {
    static constexpr bool kSigned = static_cast<T>(-1) < T{0};
    // Smallest number above the range of T.
    static constexpr double kEnd = static_cast<double>(U{1} << (8 * sizeof(T) - 1)) * (kSigned ? 1 : 2);
    double factor;
    std::int64_t divisor;
    bool changes;
    explicit Scaler(const Scale& by)
        : factor(by.factor), divisor(by.divisor), changes(by.factor != 1.0 || by.divisor != 1) {}

    static T truncate(double value) {  // saturates; NaN gives 0
      if (!(value == value)) return 0;
      if (value >= kEnd) return static_cast<T>(static_cast<U>(~U{0}) >> (kSigned ? 1 : 0));
      if (kSigned && value <= -kEnd) return static_cast<T>(U{1} << (8 * sizeof(T) - 1));
      if (!kSigned && value <= 0.0) return 0;
      return static_cast<T>(value);
    }
    // Divides in floating point. The truncated result is the integer quotient if operands and
    // quotient have few enough bits: below 2^16 in float32, below 2^32 in float64. The gap to the
    // next integer is then larger than the rounding error.
    using Quotient = std::conditional_t<sizeof(T) == 4, double, float>;
    static T divide(T value, Quotient by) {
      constexpr bool kBiased = sizeof(T) == 4 && !kSigned;  // machines convert only signed words
      const auto word = static_cast<std::int32_t>(static_cast<std::uint32_t>(value) ^ (kBiased ? 0x80000000u : 0u));
      const Quotient whole = static_cast<Quotient>(word) + (kBiased ? Quotient{0x1p31} : Quotient{0});
      return static_cast<T>(static_cast<std::int32_t>(whole / by));
    }
    static void divide_all(T* values, std::int64_t by) {
      const auto exact = static_cast<T>(by);
      const auto quick = static_cast<Quotient>(by);
      NO_UNROLL for (std::size_t i = 0; i < kWidth; ++i) {
        if constexpr (sizeof(T) == 8) values[i] = static_cast<T>(values[i] / exact);
        else values[i] = divide(values[i], quick);
      }
    }
    static void multiply_all(T* values, double by) {
      NO_UNROLL for (std::size_t i = 0; i < kWidth; ++i) values[i] = truncate(static_cast<double>(values[i]) * by);
    }
    // Static: if a loop passed the scaler's address, the compiler would reload its fields after
    // each store.
    static NOINLINE Wide apply(Wide value, double factor, std::int64_t divisor) {
      alignas(64) T values[kWidth];
      __builtin_memcpy(values, &value, sizeof values);
      if (factor != 1.0) multiply_all(values, factor);
      if (divisor != 1) divide_all(values, divisor);
      __builtin_memcpy(&value, values, sizeof values);
      return value;
    }
    INLINE Wide operator()(Wide value) const { return changes ? apply(value, factor, divisor) : value; }
  };
};

// A lane of adjacent real and imaginary parts. Sums and factors apply to each part separately.
template <class F>
struct ComplexLane : FloatLane<F> {
  using Float = FloatLane<F>;
  using typename Float::BitVector, typename Float::Wide;
  static constexpr std::size_t kWidth = Float::kWidth / 2, kSize = 2 * sizeof(F);
  static constexpr bool kHot = false;
  template <std::size_t... I>
  static INLINE Wide product(Wide a, Wide b, std::index_sequence<I...>) {
    using Bits = typename Float::Bits;
    const Wide real = __builtin_shufflevector(b, b, (I & ~std::size_t{1})...);
    const Wide imaginary = __builtin_shufflevector(b, b, (I | 1)...);
    const BitVector minus = {((I & 1) == 0 ? static_cast<Bits>(Bits{1} << (8 * sizeof(F) - 1)) : Bits{0})...};
    const Wide turned = __builtin_shufflevector(a, a, (I ^ 1)...) * imaginary;  // (ai bi, ar bi)
    return a * real + bits_as<Wide>(bits_as<BitVector>(turned) ^ minus);
  }
  static INLINE Wide multiply(Wide a, Wide b) { return product(a, b, std::make_index_sequence<Float::kWidth>()); }
};

// A lane with accumulators 0 and 1; any nonzero number is true. Booleans are one-byte numbers of
// this kind, and scaling does not change them.
template <class U>
struct LogicalLane : PlainLane<U> {
  using typename PlainLane<U>::Wide;
  static INLINE Wide widen(Wide raw) { return bits_as<Wide>(raw != 0) & 1; }
};
