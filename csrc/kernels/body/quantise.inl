// Implements the lossy encoders (kernels/quantise.hpp). Sums use 16 lanes on every instruction set,
// so that they have one order.

inline constexpr std::int32_t kTinyBits = 0x0D800000;  // 2^-100; less counts as zero: its inverse might be infinite
inline constexpr std::size_t kPadded = kLongestGroup + 64;

// Encodes a group. encode(job, way) returns true if all values are finite. If the group's length is
// not a multiple of `whole`, a copy padded with zeros is encoded.
template <std::size_t whole, auto encode>
void quantise_group(const QuantiseJob& job) {
  const std::size_t n = job.count;
  if (n % whole == 0) {
    const bool finite = encode(job, {job.block, job.residual, job.block, job.next, can_stream(job.stream, job.next)});
    if (!finite && job.next) __builtin_memcpy(job.next, job.residual, n * sizeof(float));
    return;
  }
  alignas(64) float values[kPadded], decoded[kPadded], next[kPadded];
  for (std::size_t i = 0; i < n; ++i) values[i] = job.residual ? job.block[i] + job.residual[i] : job.block[i];
  for (std::size_t i = n; i < n + 48; ++i) values[i] = 0;
  const bool finite = encode(job, {values, nullptr, decoded, next, false});
  if (job.next) __builtin_memcpy(job.next, finite ? next : job.residual, n * sizeof(float));
  __builtin_memcpy(job.block, decoded, n * sizeof(float));
}

// Returns uniform numbers in [0, 1), determined by element number and seed: the finaliser of
// MurmurHash3 on a Weyl sequence.
INLINE Floats draw(std::uint32_t seed, std::uint32_t first) {
  constexpr std::uint32_t kStep = 0x9E3779B1u;
  constexpr std::uint32_t kLane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Words x = get<Words>(kLane) * kStep + (first * kStep + seed);
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  x ^= x >> 16;
  return __builtin_convertvector(bits_as<Ints>(x >> 8), Floats) * 0x1p-24f;
}

INLINE Floats nearest(const Floats& value) {  // for magnitudes below 2^22; ties to even
  constexpr float kShift = 0x1.8p23f;
  return (value + kShift) - kShift;
}

INLINE void put_scale(void* wire, float scale) { __builtin_memcpy(wire, &scale, sizeof scale); }
INLINE float get_scale(const void* wire) {
  float scale;
  __builtin_memcpy(&scale, wire, sizeof scale);
  return scale;
}

template <int most>
INLINE float step_of(std::int32_t bits) {
  if (bits < kTinyBits) return 0;
  const float step = bits_as<float>(bits) / static_cast<float>(most);
  // The division may have rounded up; the product could then be infinite.
  return bits_as<std::int32_t>(step * static_cast<float>(most)) < kInfinityBits
             ? step : bits_as<float>(bits_as<std::int32_t>(step) - 1);
}

// Rounds a value, given in steps, to an integer number of steps.
template <int most>
INLINE Floats whole_steps(const QuantiseJob& job, std::size_t i, const Floats& steps) {
  if (!job.drawn) return nearest(steps);  // never beyond `most`: earlier rounding adds less than half a step
  const Floats drawn = steps + draw(job.seed, job.first + static_cast<std::uint32_t>(i)), whole = nearest(drawn);
  constexpr float kMost = most;
  Floats low = whole > drawn ? whole - 1.0f : whole;
  low = low > kMost ? Floats{} + kMost : low;
  return low < -kMost ? Floats{} - kMost : low;
}

// Encodes integers. Codes of 4 bits share bytes: the first half of a group in the low bits, the
// second in the high bits.
template <int most>
bool quantise_integers(const QuantiseJob& given, const Way& along) {
  const QuantiseJob job = given;
  const Way way = along;
  const std::size_t n = job.count, bytes = most == 127 ? n : (n + 1) / 2;
  Ints top = {};
  for (std::size_t i = 0; i < n; i += kLanes) top = larger(top, magnitude_bits(way.first(i)));
  const std::int32_t bits = largest_of(top);
  const bool finite = bits < kInfinityBits;
  const float step = finite ? step_of<most>(bits) : __builtin_nanf(""), inverse = step > 0 ? 1 / step : 0;
  auto* const wire = static_cast<std::uint8_t*>(job.wire);
  put_scale(wire, step);
  if (!finite) {
    for (std::size_t i = 0; i < n; ++i) way.decoded[i] = step;
    __builtin_memset(wire + 4, 0, bytes);
    return false;
  }
  const auto code = [&](std::size_t i) {
    const Floats value = way.again(i), whole = whole_steps<most>(job, i, value * inverse);
    way.give(i, value, whole * step);
    return bits_as<Words>(__builtin_convertvector(whole, Ints));
  };
  alignas(64) std::uint16_t codes[kPadded];
  for (std::size_t i = 0; i < bytes; i += kLanes) {
    Words both = code(i);
    if constexpr (most < 127) both = (both & 15u) | code(bytes + i) << 4;
    put(codes + i, truncate<kLanes>(both));
  }
  for (std::size_t i = 0; i < bytes; ++i) wire[4 + i] = static_cast<std::uint8_t>(codes[i]);
  return true;
}

void dequantise_bytes(const void* from, float* block, std::size_t n, bool) {
  const auto* const wire = static_cast<const std::int8_t*>(from);
  const float step = get_scale(wire);
  for (std::size_t i = 0; i < n; ++i) block[i] = static_cast<float>(wire[4 + i]) * step;
}

void dequantise_nibbles(const void* from, float* block, std::size_t n, bool) {
  const auto* const wire = static_cast<const std::int8_t*>(from);
  const float step = get_scale(wire);
  const std::size_t half = (n + 1) / 2;
  for (std::size_t i = 0; i < half; ++i)
    block[i] = static_cast<float>(static_cast<std::int8_t>(((wire[4 + i] & 15) ^ 8) - 8)) * step;
  for (std::size_t i = half; i < n; ++i) block[i] = static_cast<float>(wire[4 + i - half] >> 4) * step;
}

// Returns the number W of words in a bit plane of n elements. A plane has 32 rows of W elements:
// bit r of word w is that of element r W + w.
INLINE std::size_t words_of(std::size_t n) { return (n + 31) / 32; }

// Sixteen words of a plane, built from sign bits, one row of elements after another.
struct PlaneWords : Sixteen<Words> {
  INLINE void add(std::size_t p, const Ints& bits) { part[p] = part[p] >> 1 | (bits_as<Words>(bits) & 0x80000000u); }
};
using Plane = std::uint32_t[kPadded / 32 + 16];

// Calls give(element, bit), for elements up to 31 past the last.
template <class Give>
INLINE void read_plane(const std::uint8_t* wire, std::size_t n, Give give) {
  alignas(64) std::uint32_t words[kPadded / 32 + 16];
  const std::size_t width = words_of(n);
  __builtin_memcpy(words, wire, 4 * width);
  for (std::uint32_t row = 0; row < 32; ++row)
    for (std::size_t w = 0; w < width; ++w) give(row * width + w, (words[w] >> row) & 1u);
}

INLINE std::uint32_t sign_of(float value) { return bits_as<std::uint32_t>(value) >> 31; }
INLINE float with_sign(float size, std::uint32_t sign) {
  return bits_as<float>(bits_as<std::uint32_t>(size) ^ (sign << 31));
}

// Computes the means: scales[s] is the mean magnitude of the values with sign `s`. Returns false if
// a value, or the sum, is not finite.
INLINE bool find_means(const Way& way, std::size_t n, bool two_means, float scales[2]) {
  Sixteen<> sums, negative_sums, negatives;  // both are summed for two means: sums - negative_sums would be less exact
  for (std::size_t first = 0; first < n; first += 16) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const Ints bits = bits_as<Ints>(way.first(first + p * kLanes)), size = bits & kMagnitudeBits;
      if (!two_means) {
        sums.part[p] += bits_as<Floats>(size);
        continue;
      }
      const Ints minus = bits >> 31;
      sums.part[p] += bits_as<Floats>(size & ~minus);
      negative_sums.part[p] += bits_as<Floats>(size & minus);
      negatives.part[p] -= __builtin_convertvector(minus, Floats);
    }
  }
  const float high = sum_of(sums), low = sum_of(negative_sums), sum = high + low;
  scales[0] = scales[1] = sum / static_cast<float>(n);
  if (two_means) {
    const float below = sum_of(negatives), above = static_cast<float>(n) - below;
    scales[0] = above > 0 ? high / above : 0;
    scales[1] = below > 0 ? low / below : 0;
  }
  const bool finite = bits_as<std::int32_t>(sum) < kInfinityBits;
  if (!finite) scales[0] = scales[1] = __builtin_nanf("");
  return finite;
}

bool quantise_signs(const QuantiseJob& job, const Way& along) {
  const Way way = along;
  const std::size_t width = words_of(job.count), head = job.two_means ? 8 : 4;
  float scales[2];
  const bool finite = find_means(way, job.count, job.two_means, scales);
  const std::int32_t plus = bits_as<std::int32_t>(scales[0]), differs = plus ^ bits_as<std::int32_t>(-scales[1]);
  alignas(64) Plane plane;
  for (std::size_t w = 0; w < width; w += 16) {
    PlaneWords words;
    for (std::size_t row = w; row < w + 32 * width; row += width) {
      for (std::size_t p = 0; p < kParts; ++p) {
        const std::size_t i = row + p * kLanes;
        const Floats value = way.again(i);
        const Ints bits = bits_as<Ints>(value);
        words.add(p, bits);
        way.give(i, value, bits_as<Floats>((bits >> 31 & differs) ^ plus));
      }
    }
    put(plane + w, words);
  }
  auto* const wire = static_cast<std::uint8_t*>(job.wire);
  __builtin_memcpy(wire, scales, head);
  __builtin_memcpy(wire + head, plane, 4 * width);
  return finite;
}

void dequantise_signs(const void* from, float* block, std::size_t n, bool two_means) {
  const auto* const wire = static_cast<const std::uint8_t*>(from);
  const float above = get_scale(wire), below = two_means ? get_scale(wire + 4) : above;
  alignas(64) float decoded[kPadded];
  read_plane(wire + (two_means ? 8 : 4), n, [&](std::size_t i, std::uint32_t sign) {
    decoded[i] = with_sign(sign ? below : above, sign);
  });
  __builtin_memcpy(block, decoded, n * sizeof(float));
}

// Selects the elements to keep, as one mask per element. Returns the magnitude that kept elements
// decode to; NaN if it is not finite.
INLINE float choose(const QuantiseJob& job, const Way& way, Ints* kept) {
  const std::size_t n = job.count;
  Sixteen<> sums, chosen, number;
  Ints top = {};
  for (std::size_t first = 0; first < n; first += 16) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const Ints bits = magnitude_bits(way.first(first + p * kLanes));
      top = larger(top, bits);
      sums.part[p] += bits_as<Floats>(bits);
    }
  }
  const float mean = sum_of(sums) / static_cast<float>(n), from = job.amount * mean;
  const float most = bits_as<float>(largest_of(top));
  for (std::size_t first = 0; first < n; first += 16) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const std::size_t i = first + p * kLanes;
      const Floats size = magnitude(way.again(i));
      Ints keeps = size > 0.0f;
      if (job.drawn) keeps &= size > draw(job.seed, job.first + static_cast<std::uint32_t>(i)) * most;
      else keeps &= size >= from;
      chosen.part[p] += bits_as<Floats>(bits_as<Ints>(size) & keeps);
      number.part[p] -= __builtin_convertvector(keeps, Floats);
      kept[i / kLanes] = keeps;
    }
  }
  const float count = sum_of(number);
  const float scale = job.drawn ? most : count > 0 ? sum_of(chosen) / count : 0;
  const bool finite = bits_as<std::int32_t>(scale) < kInfinityBits && bits_as<std::int32_t>(mean) < kInfinityBits;
  return finite ? scale : __builtin_nanf("");
}

// Encodes two planes: one marks nonzero elements, the other holds signs.
bool quantise_ternary(const QuantiseJob& given, const Way& along) {
  const QuantiseJob job = given;
  const Way way = along;
  Ints kept[kPadded / kLanes];
  for (std::size_t i = job.count / kLanes; i < (job.count + 48) / kLanes; ++i) kept[i] = Ints{};
  const float scale = choose(job, way, kept);
  const bool finite = scale == scale;
  const std::int32_t always = finite ? 0 : -1;
  const std::size_t width = words_of(job.count);
  alignas(64) Plane planes[2];
  for (std::size_t w = 0; w < width; w += 16) {
    PlaneWords keeps, signs;
    for (std::size_t row = w; row < w + 32 * width; row += width) {
      for (std::size_t p = 0; p < kParts; ++p) {
        const std::size_t i = row + p * kLanes;
        const Floats value = way.again(i);
        const Ints bits = bits_as<Ints>(value);
        const Ints keep = get<Ints>(reinterpret_cast<const std::int32_t*>(kept) + i) | always;
        keeps.add(p, keep);
        signs.add(p, bits);
        way.give(i, value, bits_as<Floats>(((bits & ~kMagnitudeBits) ^ bits_as<std::int32_t>(scale)) & keep));
      }
    }
    put(planes[0] + w, keeps);
    put(planes[1] + w, signs);
  }
  auto* const wire = static_cast<std::uint8_t*>(job.wire);
  put_scale(wire, scale);
  for (std::size_t k = 0; k < 2; ++k) __builtin_memcpy(wire + 4 + 4 * width * k, planes[k], 4 * width);
  return finite;
}

void dequantise_ternary(const void* from, float* block, std::size_t n, bool) {
  const auto* const wire = static_cast<const std::uint8_t*>(from);
  const float scale = get_scale(wire);
  alignas(64) float decoded[kPadded];
  read_plane(wire + 4 + 4 * words_of(n), n,
             [&](std::size_t i, std::uint32_t sign) { decoded[i] = with_sign(scale, sign); });
  read_plane(wire + 4, n, [&](std::size_t i, std::uint32_t kept) { decoded[i] = kept ? decoded[i] : 0.0f; });
  __builtin_memcpy(block, decoded, n * sizeof(float));
}
