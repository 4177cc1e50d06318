// Defines vectors of kVectorBytes: loads, stores, selection. They are the vector types of GCC and
// clang. Each operation is the same IEEE or integer operation on every machine, and the last few
// elements take the same path as all others.

// Distance of prefetches, in bytes. Another core may own the cache lines. Stores drain in order, so
// without prefetches only one store at a time would wait for its line (10 times slower between
// cores without a common cache).
constexpr std::size_t kAheadBytes = 512;

template <class T, std::size_t N>
struct VectorOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, std::size_t N>
using Vector = typename VectorOf<T, N>::type;

template <class V>
INLINE V load(const std::byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <class V>
INLINE void store(std::byte* to, const V& value) {
  __builtin_memcpy(to, &value, sizeof value);
}

template <class To, class From>
INLINE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// Makes a non-temporal store, to an address that is a multiple of the vector's size.
template <class V>
INLINE void store_streaming(std::byte* to, V value) {
#if defined(__x86_64__)
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits_as<__m512i>(value));
#endif
#if defined(__AVX__)
  if constexpr (sizeof(V) == 32) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits_as<__m256i>(value));
#endif
  if constexpr (sizeof(V) == 16) return _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits_as<__m128i>(value));
  if constexpr (sizeof(V) == 8) return _mm_stream_si64(reinterpret_cast<long long*>(to), bits_as<long long>(value));
#endif
  store(to, value);
}

// A pair of vectors that are loaded and stored together, one after the other.
template <class V>
struct Two {
  V a, b;
};

template <class R>
struct Memory {
  static INLINE R read(const std::byte* from) { return load<R>(from); }
  static INLINE void write(std::byte* to, const R& value) { store(to, value); }
  static INLINE void write_streaming(std::byte* to, const R& value) { store_streaming(to, value); }
};
template <class V>
struct Memory<Two<V>> {
  static INLINE Two<V> read(const std::byte* from) { return {load<V>(from), load<V>(from + sizeof(V))}; }
  static INLINE void write(std::byte* to, const Two<V>& value) {
    store(to, value.a);
    store(to + sizeof(V), value.b);
  }
  static INLINE void write_streaming(std::byte* to, const Two<V>& value) {
    store_streaming(to, value.a);
    store_streaming(to + sizeof(V), value.b);
  }
};

#if defined(__x86_64__)
void fence() { _mm_sfence(); }
#else
constexpr std::nullptr_t fence = nullptr;
#endif

// Copies as copy_stream (or with plain stores). With `taking`, the source is memory that another
// core wrote. Storing one value of each line back acquires the line, so that this core owns it when
// it next stores there.
template <bool streaming, bool taking>
INLINE void copy_lines(std::byte* to, std::byte* from, std::size_t nbytes) {
  using V = Vector<std::uint8_t, kVectorBytes>;
  for (std::size_t at = 0; at + 64 <= nbytes; at += 64) {
    if constexpr (taking) __builtin_prefetch(from + at + kAheadBytes, 1);
    V line[64 / kVectorBytes];
    for (std::size_t v = 0; v < 64 / kVectorBytes; ++v) line[v] = load<V>(from + at + v * kVectorBytes);
    if constexpr (taking) *reinterpret_cast<volatile std::byte*>(from + at) = std::byte{line[0][0]};
    for (std::size_t v = 0; v < 64 / kVectorBytes; ++v) {
      std::byte* const place = to + at + v * kVectorBytes;
      if constexpr (streaming) store_streaming(place, line[v]); else store(place, line[v]);
    }
  }
  const std::size_t rest = nbytes % 64;
  __builtin_memcpy(to + nbytes - rest, from + nbytes - rest, rest);
}

void copy_apart(void* target, const void* source, std::size_t nbytes) {
  auto* from = static_cast<std::byte*>(const_cast<void*>(source));  // only read
  copy_lines<false, false>(static_cast<std::byte*>(target), from, nbytes);
}

void copy_taking(void* target, void* source, std::size_t nbytes, bool streaming) {
  auto* to = static_cast<std::byte*>(target);
  auto* from = static_cast<std::byte*>(source);
  if (!streaming) return copy_lines<false, true>(to, from, nbytes);
  const std::size_t head = std::min((64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64, nbytes);
  __builtin_memcpy(to, from, head);
  copy_lines<true, true>(to + head, from + head, nbytes - head);
#if defined(__x86_64__)
  fence();
#endif
}

void copy_stream(void* target, const void* source, std::size_t nbytes) {
  auto* to = static_cast<std::byte*>(target);
  auto* from = static_cast<std::byte*>(const_cast<void*>(source));  // only read
  const std::size_t head = std::min((64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64, nbytes);
  __builtin_memcpy(to, from, head);
  copy_lines<true, false>(to + head, from + head, nbytes - head);
#if defined(__x86_64__)
  fence();
#endif
}
