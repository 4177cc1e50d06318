// Converts float16 and bfloat16 to and from float32, N at a time. Rounding is to nearest, ties to
// even. A NaN stays a NaN and keeps its sign and the payload bits that fit. The result is quiet,
// except that bfloat16 to float32 keeps all bits. The software float16 below gives the same bits as
// F16C and AArch64's FCVT.

// Extends 16 bits to 32; truncate() keeps the low half. The compiler's own conversion is slower for
// these vector sizes.
template <std::size_t N>
INLINE Vector<std::uint32_t, N> extend(Vector<std::uint16_t, N> halves) {
  using U [[maybe_unused]] = Vector<std::uint32_t, N>;
#if defined(__AVX512F__)
  if constexpr (N == 16) return bits_as<U>(_mm512_maskz_cvtepu16_epi32(0xFFFF, bits_as<__m256i>(halves)));
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) return bits_as<U>(_mm256_cvtepu16_epi32(bits_as<__m128i>(halves)));
#elif defined(__SSE2__)
  if constexpr (N == 4)
    return bits_as<U>(_mm_unpacklo_epi16(_mm_cvtsi64_si128(bits_as<long long>(halves)), _mm_setzero_si128()));
#endif
  return __builtin_convertvector(halves, Vector<std::uint32_t, N>);
}

template <std::size_t N>
INLINE Vector<std::uint16_t, N> truncate(Vector<std::uint32_t, N> words) {
  using H [[maybe_unused]] = Vector<std::uint16_t, N>;
#if defined(__AVX512F__)
  if constexpr (N == 16) return bits_as<H>(_mm512_maskz_cvtepi32_epi16(0xFFFF, bits_as<__m512i>(words)));
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) {
    const __m256i low = _mm256_and_si256(bits_as<__m256i>(words), _mm256_set1_epi32(0xFFFF));
    return bits_as<H>(_mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
  }
#elif defined(__SSE2__)
  if constexpr (N == 4) {  // SSE2 packs with signed saturation only, which sign-extended halves pass unchanged
    const __m128i low = _mm_srai_epi32(_mm_slli_epi32(bits_as<__m128i>(words), 16), 16);
    return bits_as<H>(_mm_cvtsi128_si64(_mm_packs_epi32(low, low)));
  }
#endif
  return __builtin_convertvector(words, Vector<std::uint16_t, N>);
}

template <std::size_t N>
INLINE Vector<float, N> widen_bfloat16(Vector<std::uint16_t, N> halves) {
  return bits_as<Vector<float, N>>(extend<N>(halves) << 16);
}

template <std::size_t N>
INLINE Vector<std::uint16_t, N> narrow_bfloat16(Vector<float, N> wide) {
  using U = Vector<std::uint32_t, N>;
  const auto bits = bits_as<U>(wide);
  const U rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const U quiet = (bits >> 16) | 0x40u;
  return truncate<N>(wide == wide ? rounded : quiet);
}

template <std::size_t N>
INLINE Vector<float, N> widen_float16_in_software(Vector<std::uint16_t, N> halves) {
  using U = Vector<std::uint32_t, N>;
  using I = Vector<std::int32_t, N>;
  using F = Vector<float, N>;
  const U bits = extend<N>(halves);
  const U magnitude = bits & 0x7FFFu;
  const I signed_magnitude = bits_as<I>(magnitude);
  const U normal = (magnitude << 13) + (112u << 23);                    // exponent bias 15 becomes 127
  const U special = (magnitude << 13) | 0x7F800000u;                    // infinity and NaN
  const U quiet = special | 0x00400000u;
  const U subnormal = bits_as<U>(__builtin_convertvector(signed_magnitude, F) * 0x1p-24f);
  U result = signed_magnitude < 0x0400 ? subnormal : normal;
  result = signed_magnitude >= 0x7C00 ? special : result;
  result = signed_magnitude > 0x7C00 ? quiet : result;
  return bits_as<F>(result | ((bits & 0x8000u) << 16));
}

template <std::size_t N>
INLINE Vector<std::uint16_t, N> narrow_float16_in_software(Vector<float, N> wide) {
  using U = Vector<std::uint32_t, N>;
  using I = Vector<std::int32_t, N>;
  using F = Vector<float, N>;
  const auto bits = bits_as<U>(wide);
  const U magnitude = bits & 0x7FFFFFFFu;
  const I signed_magnitude = bits_as<I>(magnitude);
  const U normal = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Below 2^-14 the float32 unit in the last place of 0.5 + x is float16's smallest step, so the
  // addition rounds.
  const U subnormal = bits_as<U>(bits_as<F>(magnitude) + 0.5f) - 0x3F000000u;
  const U nan = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  const U infinity = U{} + 0x7C00u;
  U result = signed_magnitude < 0x38800000 ? subnormal : normal;
  result = signed_magnitude >= 0x477FF000 ? infinity : result;          // 65520 and above
  result = signed_magnitude > 0x7F800000 ? nan : result;
  return truncate<N>(result | ((bits >> 16) & 0x8000u));
}

template <std::size_t N>
INLINE Vector<float, N> widen_float16(Vector<std::uint16_t, N> halves) {
#if defined(__AVX512F__)
  if constexpr (N == 16) return bits_as<Vector<float, N>>(_mm512_maskz_cvtph_ps(0xFFFF, bits_as<__m256i>(halves)));
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return bits_as<Vector<float, N>>(_mm256_cvtph_ps(bits_as<__m128i>(halves)));
  if constexpr (N == 4)
    return bits_as<Vector<float, N>>(_mm_cvtph_ps(_mm_cvtsi64_si128(bits_as<long long>(halves))));
#elif defined(RINGCOMM_NEON)
  if constexpr (N == 4) return bits_as<Vector<float, N>>(vcvt_f32_f16(bits_as<float16x4_t>(halves)));
#endif
  return widen_float16_in_software<N>(halves);
}

template <std::size_t N>
INLINE Vector<std::uint16_t, N> narrow_float16(Vector<float, N> wide) {
  using H [[maybe_unused]] = Vector<std::uint16_t, N>;
#if defined(__AVX512F__)
  if constexpr (N == 16)
    return bits_as<H>(_mm512_maskz_cvtps_ph(0xFFFF, bits_as<__m512>(wide), _MM_FROUND_TO_NEAREST_INT));
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return bits_as<H>(_mm256_cvtps_ph(bits_as<__m256>(wide), _MM_FROUND_TO_NEAREST_INT));
  if constexpr (N == 4)
    return bits_as<H>(_mm_cvtsi128_si64(_mm_cvtps_ph(bits_as<__m128>(wide), _MM_FROUND_TO_NEAREST_INT)));
#elif defined(RINGCOMM_NEON)
  if constexpr (N == 4) return bits_as<H>(vcvt_f16_f32(bits_as<float32x4_t>(wide)));
#endif
  return narrow_float16_in_software<N>(wide);
}

// A vector of halves corresponds to two vectors of float32, in the order that is cheapest to
// compute.
using FloatVector = Vector<float, kVectorBytes / 4>;
using FloatPair = Two<FloatVector>;

struct Float16 {
  static constexpr std::int16_t kInfinity = 0x7C00;
  static constexpr std::size_t kHalf = kVectorBytes / 4;
  using Raw = Two<Vector<std::uint16_t, kHalf>>;
  template <std::size_t N>
  static INLINE Vector<float, N> widen(Vector<std::uint16_t, N> halves) { return widen_float16<N>(halves); }
  template <std::size_t N>
  static INLINE Vector<std::uint16_t, N> narrow(Vector<float, N> wide) { return narrow_float16<N>(wide); }
  static INLINE FloatPair widen_pair(Raw halves) {
    return {widen_float16<kHalf>(halves.a), widen_float16<kHalf>(halves.b)};
  }
  static INLINE Raw narrow_pair(FloatPair wide) {
    return {narrow_float16<kHalf>(wide.a), narrow_float16<kHalf>(wide.b)};
  }
};

struct BFloat16 {
  static constexpr std::int16_t kInfinity = 0x7F80;
  using Words = Vector<std::uint32_t, kVectorBytes / 4>;
  using Raw = Words;
  template <std::size_t N>
  static INLINE Vector<float, N> widen(Vector<std::uint16_t, N> halves) { return widen_bfloat16<N>(halves); }
  template <std::size_t N>
  static INLINE Vector<std::uint16_t, N> narrow(Vector<float, N> wide) { return narrow_bfloat16<N>(wide); }
  // Two neighbours share a 32-bit word. Each becomes the upper half of a float32 in the same 32-bit
  // lane, so no data moves between lanes.
  static INLINE FloatPair widen_pair(Words words) {
    return {bits_as<FloatVector>(words << 16), bits_as<FloatVector>(words & 0xFFFF0000u)};
  }
  // Requires canonical values: the canonical NaN's low bits are zero, so rounding keeps it a NaN.
  static INLINE Words round_up(FloatVector wide) {
    const auto bits = bits_as<Words>(wide);
    return bits + 0x7FFFu + ((bits >> 16) & 1u);
  }
  static INLINE Words narrow_pair(FloatPair wide) {
    return (round_up(wide.a) >> 16) | (round_up(wide.b) & 0xFFFF0000u);
  }
};
