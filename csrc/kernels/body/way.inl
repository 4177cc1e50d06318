// Reads the values that lossy encoders encode, and writes their decoded values and residuals, a
// vector at a time.

inline constexpr std::size_t kLanes = kVectorBytes / sizeof(float), kParts = 16 / kLanes;
using Floats = Vector<float, kLanes>;
using Ints = Vector<std::int32_t, kLanes>;
using Words = Vector<std::uint32_t, kLanes>;

inline constexpr std::int32_t kMagnitudeBits = 0x7FFFFFFF, kInfinityBits = 0x7F800000;
inline constexpr std::size_t kAhead = 512;  // distance, in elements, of prefetches

template <class V = Floats>
INLINE V get(const void* from) {
  return load<V>(static_cast<const std::byte*>(from));
}
template <class V>
INLINE void put(void* to, const V& value) {
  store(static_cast<std::byte*>(to), value);
}

// The arrays of an encoder. It encodes each element plus the element's residual, and writes the
// decoded value and the next residual.
struct Way {
  const float *block, *residual;
  float *decoded, *next;
  bool streams;

  INLINE Floats again(std::size_t i) const { return residual ? get(block + i) + get(residual + i) : get(block + i); }
  INLINE Floats first(std::size_t i) const {
    __builtin_prefetch(block + i + kAhead, 1);
    if (residual) __builtin_prefetch(residual + i + kAhead);
    if (next && !streams) __builtin_prefetch(next + i + kAhead, 1);
    return again(i);
  }
  INLINE void hold(std::size_t i, const Floats& value) const {
    if (streams) store_streaming(reinterpret_cast<std::byte*>(next + i), value);
    else if (next) put(next + i, value);
  }
  INLINE void give(std::size_t i, const Floats& value, const Floats& to) const {
    put(decoded + i, to);
    hold(i, value - to);
  }
};

INLINE bool can_stream(bool asked, const float* next) {
  return asked && next && reinterpret_cast<std::uintptr_t>(next) % 64 == 0;
}

// Partial results in 16 lanes. All instruction sets use 16, so that sums have the same order.
template <class V = Floats>
struct Sixteen {
  V part[kParts] = {};
};

// Combines lanes with each other: the first half with the second, and so on.
template <class V, class Join, std::size_t... I>
INLINE auto halves_joined(const V& lanes, Join join, std::index_sequence<I...>) {
  const auto low = __builtin_shufflevector(lanes, lanes, I...);
  return join(low, __builtin_shufflevector(lanes, lanes, (I + sizeof...(I))...));
}
template <class V, class Join>
INLINE auto joined(const V& lanes, Join join) {
  constexpr std::size_t kHalf = sizeof(V) / sizeof(lanes[0]) / 2;
  if constexpr (kHalf == 1) return join(lanes[0], lanes[1]);
  else return joined(halves_joined(lanes, join, std::make_index_sequence<kHalf>()), join);
}

INLINE float sum_of(Sixteen<> lanes) {
  for (std::size_t n = kParts / 2; n > 0; n /= 2)
    for (std::size_t p = 0; p < n; ++p) lanes.part[p] += lanes.part[p + n];
  return joined(lanes.part[0], [](auto a, auto b) { return a + b; });
}
INLINE std::int32_t largest_of(const Ints& lanes) {
  return joined(lanes, [](auto a, auto b) { return a > b ? a : b; });
}
INLINE Ints larger(const Ints& a, const Ints& b) { return a > b ? a : b; }
INLINE Ints magnitude_bits(const Floats& value) { return bits_as<Ints>(value) & kMagnitudeBits; }
INLINE Floats magnitude(const Floats& value) { return bits_as<Floats>(magnitude_bits(value)); }
