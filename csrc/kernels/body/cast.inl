// Converts floating dtypes into each other, correctly rounded.

// Converts float64 to float32 by rounding to odd: truncates, then sets the last bit if the result
// is inexact. Rounding that to a half gives the same bits as rounding the float64 to a half (Boldo
// and Melquiond, IEEE Trans. Computers 57(4), 2008).
template <std::size_t N>
INLINE Vector<float, N> round_to_odd(const Vector<double, N>& wide) {
  using F = Vector<float, N>;
  using I = Vector<std::int32_t, N>;
  using L = Vector<std::int64_t, N>;
  constexpr std::int64_t kMagnitude = 0x7FFFFFFFFFFFFFFF;
  const F nearest = __builtin_convertvector(wide, F);
  const auto back = __builtin_convertvector(nearest, Vector<double, N>);
  const L was = bits_as<L>(wide) & kMagnitude, is = bits_as<L>(back) & kMagnitude;
  const I too_far = __builtin_convertvector(is > was, I);     // -1 where rounding increased the magnitude
  const I inexact = __builtin_convertvector(is != was, I);
  const I odd = (bits_as<I>(nearest) + too_far) | (inexact & 1);
  return nearest == nearest ? bits_as<F>(odd) : nearest;      // a NaN's truncated payload does not count as inexact
}

template <class Half>
struct HalfFormat {
  static constexpr std::size_t kSize = 2;
  static constexpr bool kHalf = true, kDouble = false;
  template <std::size_t N>
  static INLINE Vector<float, N> read(const std::byte* from) {
    return Half::template widen<N>(load<Vector<std::uint16_t, N>>(from));
  }
  template <std::size_t N>
  static INLINE void write(std::byte* to, const Vector<float, N>& value) { store(to, Half::template narrow<N>(value)); }
};

template <class F>
struct FloatFormat {
  static constexpr std::size_t kSize = sizeof(F);
  static constexpr bool kHalf = false, kDouble = sizeof(F) == 8;
  template <std::size_t N>
  static INLINE Vector<F, N> read(const std::byte* from) { return load<Vector<F, N>>(from); }
  template <std::size_t N>
  static INLINE void write(std::byte* to, const Vector<F, N>& value) { store(to, value); }
};

template <class To, std::size_t N, class F>
INLINE void write_as(std::byte* to, const F& value) {
  if constexpr (To::kHalf && sizeof(F) == N * sizeof(double)) {
    To::template write<N>(to, round_to_odd<N>(value));
  } else if constexpr (To::kDouble) {
    To::template write<N>(to, __builtin_convertvector(value, Vector<double, N>));
  } else {
    To::template write<N>(to, __builtin_convertvector(value, Vector<float, N>));
  }
}

template <class To, class From, std::size_t N>
INLINE void cast_some(std::byte* to, const std::byte* from) {
  write_as<To, N>(to, From::template read<N>(from));
}

template <class To, class From>
void cast_all(void* target, const void* source, std::size_t count) {
  constexpr std::size_t N = kVectorBytes / (To::kDouble || From::kDouble ? 8 : 4);
  auto* to = static_cast<std::byte*>(target);
  const auto* from = static_cast<const std::byte*>(source);
  std::size_t i = 0;
  for (; i + N <= count; i += N) cast_some<To, From, N>(to + i * To::kSize, from + i * From::kSize);
  if (i == count) return;
  alignas(64) std::byte padded_from[N * From::kSize] = {}, padded_to[N * To::kSize];
  __builtin_memcpy(padded_from, from + i * From::kSize, (count - i) * From::kSize);
  cast_some<To, From, N>(padded_to, padded_from);
  __builtin_memcpy(to + i * To::kSize, padded_to, (count - i) * To::kSize);
}
