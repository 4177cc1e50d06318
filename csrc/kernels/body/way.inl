// How lossy encoders read values and write what these decode to, a vector at a time.

inline constexpr std::size_t kLanes = kVectorBytes / sizeof(float), kParts = 16 / kLanes;
using Floats = Vector<float, kLanes>;
using Ints = Vector<std::int32_t, kLanes>;
using Words = Vector<std::uint32_t, kLanes>;

inline constexpr std::int32_t kMagnitudeBits = 0x7FFFFFFF, kInfinityBits = 0x7F800000;
inline constexpr std::size_t kAhead = 512;  // elements by which memory is asked for before its turn

template <class V = Floats>
INLINE V get(const void* from) {
  return load<V>(static_cast<const std::byte*>(from));
}
template <class V>
INLINE void put(void* to, const V& value) {
  store(static_cast<std::byte*>(to), value);
}

// Of each element the sum with what is owed of it; and where its decoded value goes, and what is held back.
struct Way {
  const float *block, *owed;
  float *decoded, *next;
  bool streams;

  INLINE Floats again(std::size_t i) const { return owed ? get(block + i) + get(owed + i) : get(block + i); }
  INLINE Floats first(std::size_t i) const {
    __builtin_prefetch(block + i + kAhead, 1);
    if (owed) __builtin_prefetch(owed + i + kAhead);
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

// Sums of lanes, or the like, of 16 elements at a time on every instruction set: they have one order.
template <class V = Floats>
struct Sixteen {
  V part[kParts] = {};
};

INLINE float sum_of(const Sixteen<>& lanes) {
  float all[16];
  __builtin_memcpy(all, &lanes, sizeof all);
  for (std::size_t i = 0; i < 8; ++i) all[i] += all[i + 8];
  for (std::size_t i = 0; i < 4; ++i) all[i] += all[i + 4];
  return (all[0] + all[2]) + (all[1] + all[3]);
}

INLINE std::int32_t largest_of(const Ints& lanes) {
  std::int32_t all[kLanes];
  __builtin_memcpy(all, &lanes, sizeof all);
  for (std::size_t n = kLanes / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) all[i] = all[i] > all[i + n] ? all[i] : all[i + n];
  return all[0];
}
INLINE Ints larger(const Ints& a, const Ints& b) { return a > b ? a : b; }
INLINE Ints magnitude_bits(const Floats& value) { return bits_as<Ints>(value) & kMagnitudeBits; }
INLINE Floats magnitude(const Floats& value) { return bits_as<Floats>(magnitude_bits(value)); }
