// Lossy encoders (kernels/quantise.hpp): 16 lanes on every instruction set, so that sums have one order.

using F16 = Vector<float, 16>;
using I16 = Vector<std::int32_t, 16>;
using U16 = Vector<std::uint32_t, 16>;

inline constexpr std::int32_t kMagnitudeBits = 0x7FFFFFFF, kInfinityBits = 0x7F800000;
inline constexpr std::int32_t kTinyBits = 0x0D800000;  // 2^-100: less counts as zero, for its inverse might be infinite
inline constexpr std::size_t kPadded = kLongestGroup + 64;

INLINE F16 at16(const float* from) { return load<F16>(reinterpret_cast<const std::byte*>(from)); }
INLINE void put16(float* to, const F16& value) { store(reinterpret_cast<std::byte*>(to), value); }

// A group's values, and what they decode to, with zeros behind them.
struct Group {
  alignas(64) float values[kPadded];
  alignas(64) float decoded[kPadded];

  INLINE explicit Group(const QuantiseJob& job) {
    const float* const block = job.block;
    const float* const owed = job.owed;
    const std::size_t n = job.count;
    if (owed) for (std::size_t i = 0; i < n; ++i) values[i] = block[i] + owed[i];
    else __builtin_memcpy(values, block, n * sizeof(float));
    for (std::size_t i = n; i < n + 48; ++i) values[i] = 0;
  }
  INLINE void give(const QuantiseJob& job, bool finite) const {
    const std::size_t n = job.count;
    if (float* const next = job.next) {
      const float* const owed = job.owed;
      if (finite) for (std::size_t i = 0; i < n; ++i) next[i] = values[i] - decoded[i];
      else for (std::size_t i = 0; i < n; ++i) next[i] = owed[i];
    }
    __builtin_memcpy(job.block, decoded, n * sizeof(float));
  }
};

INLINE std::int32_t largest(const float* values, std::size_t n) {
  I16 most = {};
  for (std::size_t i = 0; i < n; i += 16) {
    const I16 bits = bits_as<I16>(at16(values + i)) & kMagnitudeBits;
    most = bits > most ? bits : most;
  }
  std::int32_t all = 0;
  for (std::size_t lane = 0; lane < 16; ++lane) all = most[lane] > all ? most[lane] : all;
  return all;
}

INLINE float sum_of(const F16& lanes) {
  float half[8];
  for (std::size_t i = 0; i < 8; ++i) half[i] = lanes[i] + lanes[i + 8];
  for (std::size_t i = 0; i < 4; ++i) half[i] += half[i + 4];
  return (half[0] + half[2]) + (half[1] + half[3]);
}

INLINE F16 magnitude(const F16& value) { return bits_as<F16>(bits_as<I16>(value) & kMagnitudeBits); }

// Uniform in [0, 1), by the element's number and a seed: the finaliser of MurmurHash3 on a Weyl sequence.
INLINE F16 draw(std::uint32_t seed, std::uint32_t first) {
  U16 x = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  x = (x + first) * 0x9E3779B1u + seed;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  x ^= x >> 16;
  return __builtin_convertvector(bits_as<I16>(x >> 8), F16) * 0x1p-24f;
}

INLINE F16 nearest(const F16& value) {  // of magnitudes below 2^22, to even
  constexpr float kShift = 0x1.8p23f;
  return (value + kShift) - kShift;
}

INLINE void put_scale(void* wire, float scale) { __builtin_memcpy(wire, &scale, sizeof scale); }
INLINE float get_scale(const void* wire) {
  float scale;
  __builtin_memcpy(&scale, wire, sizeof scale);
  return scale;
}

INLINE void fill_nan(float* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] = __builtin_nanf("");
}

template <int most>
INLINE float step_of(std::int32_t bits) {
  if (bits < kTinyBits) return 0;
  const float step = bits_as<float>(bits) / static_cast<float>(most);
  // The division may have rounded up, and the product then be infinite.
  return bits_as<std::int32_t>(step * static_cast<float>(most)) < kInfinityBits
             ? step : bits_as<float>(bits_as<std::int32_t>(step) - 1);
}

// Codes of two to a byte: the first half of a group below the second.
template <int most>
void quantise_integers(const QuantiseJob& job) {
  Group group(job);
  const std::size_t n = job.count;
  auto* const wire = static_cast<std::uint8_t*>(job.wire);
  const std::int32_t bits = largest(group.values, n);
  const bool finite = bits < kInfinityBits;
  const float step = finite ? step_of<most>(bits) : __builtin_nanf("");
  put_scale(wire, step);
  alignas(64) std::int8_t codes[kPadded];
  if (finite) {
    const float inverse = step > 0 ? 1 / step : 0;
    for (std::size_t i = 0; i < n; i += 16) {
      F16 scaled = at16(group.values + i) * inverse;
      if (job.drawn) {
        scaled = scaled + draw(job.seed, job.first + static_cast<std::uint32_t>(i));
        const F16 whole = nearest(scaled);
        scaled = whole > scaled ? whole - 1.0f : whole;
      } else {
        scaled = nearest(scaled);
      }
      constexpr float kMost = most;
      scaled = scaled > kMost ? F16{} + kMost : scaled;
      scaled = scaled < -kMost ? F16{} - kMost : scaled;
      put16(group.decoded + i, scaled * step);
      const I16 whole = __builtin_convertvector(scaled, I16);
      store(reinterpret_cast<std::byte*>(codes + i), __builtin_convertvector(whole, Vector<std::int8_t, 16>));
    }
  } else {
    fill_nan(group.decoded, n);
    __builtin_memset(codes, 0, n);
  }
  if constexpr (most == 127) {
    __builtin_memcpy(wire + 4, codes, n);
  } else {
    const std::size_t half = (n + 1) / 2;
    codes[n] = 0;
    for (std::size_t i = 0; i < half; ++i)
      wire[4 + i] = static_cast<std::uint8_t>((codes[i] & 15) | (codes[half + i] << 4));
  }
  group.give(job, finite);
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

// Bits of 32 rows of elements: word w holds those of elements w, words + w, 2 words + w ...
INLINE std::size_t words_of(std::size_t n) { return (n + 31) / 32; }

template <class Bit>
INLINE void put_plane(std::uint8_t* wire, std::size_t n, Bit bit) {
  alignas(64) std::uint32_t words[kPadded / 32 + 16] = {};
  const std::size_t width = words_of(n);
  for (std::uint32_t row = 0; row < 32; ++row)
    for (std::size_t w = 0; w < width; ++w) words[w] |= bit(row * width + w) << row;
  __builtin_memcpy(wire, words, 4 * width);
}

// give(element, bit), of elements up to 31 past the last.
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

// What has sign `s` becomes scales[s], with it.
void quantise_signs(const QuantiseJob& job) {
  Group group(job);
  const std::size_t n = job.count;
  const bool finite = largest(group.values, n) < kInfinityBits;
  F16 positive_sums = {}, negative_sums = {}, negatives = {};  // apart: their difference would be less exact
  for (std::size_t i = 0; i < n; i += 16) {
    const F16 value = at16(group.values + i);
    const I16 bits = bits_as<I16>(value), minus = bits < 0;
    positive_sums = positive_sums + bits_as<F16>(bits & ~minus);
    negative_sums = negative_sums + bits_as<F16>(bits & minus & kMagnitudeBits);
    negatives = negatives - __builtin_convertvector(minus, F16);
  }
  const float high = sum_of(positive_sums), low = sum_of(negative_sums);
  float scales[2];
  scales[0] = scales[1] = (high + low) / static_cast<float>(n);
  if (job.two_means) {
    const float below = sum_of(negatives), above = static_cast<float>(n) - below;
    scales[0] = above > 0 ? high / above : 0;
    scales[1] = below > 0 ? low / below : 0;
  }
  // The sum of large ones may be infinite.
  const bool all = finite && bits_as<std::int32_t>(scales[0]) < kInfinityBits &&
                   bits_as<std::int32_t>(scales[1]) < kInfinityBits;
  if (!all) scales[0] = scales[1] = __builtin_nanf("");
  auto* const wire = static_cast<std::uint8_t*>(job.wire);
  const std::size_t head = job.two_means ? 8 : 4;
  __builtin_memcpy(wire, scales, head);
  put_plane(wire + head, n, [&](std::size_t i) { return sign_of(group.values[i]); });
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t sign = sign_of(group.values[i]);
    group.decoded[i] = with_sign(sign ? scales[1] : scales[0], sign);
  }
  group.give(job, all);
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

// A plane of which elements are not zero, and one of signs.
void quantise_ternary(const QuantiseJob& job) {
  Group group(job);
  const std::size_t n = job.count;
  const std::int32_t bits = largest(group.values, n);
  bool finite = bits < kInfinityBits;
  F16 sums = {};
  for (std::size_t i = 0; i < n; i += 16) sums = sums + magnitude(at16(group.values + i));
  const float mean = sum_of(sums) / static_cast<float>(n), from = job.amount * mean;
  alignas(64) std::uint32_t kept[kPadded];
  F16 chosen = {}, number = {};
  const float most = bits_as<float>(bits);
  for (std::size_t i = 0; i < n + 32; i += 16) {
    const F16 size = magnitude(at16(group.values + i));
    I16 keeps = size >= from;
    if (job.drawn) keeps = size > draw(job.seed, job.first + static_cast<std::uint32_t>(i)) * most;
    keeps &= size > 0.0f;
    chosen = chosen + bits_as<F16>(bits_as<I16>(size) & keeps);
    number = number - __builtin_convertvector(keeps, F16);
    store(reinterpret_cast<std::byte*>(kept + i), bits_as<U16>(keeps & 1));
  }
  const float count = sum_of(number);
  float scale = job.drawn ? most : count > 0 ? sum_of(chosen) / count : 0;
  finite = finite && bits_as<std::int32_t>(scale) < kInfinityBits && bits_as<std::int32_t>(mean) < kInfinityBits;
  if (!finite) scale = __builtin_nanf("");
  auto* const wire = static_cast<std::uint8_t*>(job.wire);
  put_scale(wire, scale);
  put_plane(wire + 4, n, [&](std::size_t i) { return finite ? kept[i] : 1u; });
  put_plane(wire + 4 + 4 * words_of(n), n, [&](std::size_t i) { return sign_of(group.values[i]); });
  for (std::size_t i = 0; i < n; ++i) {
    const float size = with_sign(scale, sign_of(group.values[i]));
    group.decoded[i] = !finite || kept[i] ? size : 0.0f;
  }
  group.give(job, finite);
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
