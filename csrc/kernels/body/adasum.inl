// Implements the two passes of Adasum, in float64: three dot products, then the weighted sum.

inline constexpr std::size_t kDotLanes = 16;  // partial sums; equal on all instruction sets, for equal bits

template <class Format>
struct Doubles {
  static constexpr std::size_t kWidth = kVectorBytes / 8;
  using V = Vector<double, kWidth>;
  static INLINE V read(const std::byte* from) {
    return __builtin_convertvector(Format::template read<kWidth>(from), V);
  }
  static INLINE void write(std::byte* to, const V& value) {
    write_as<Format, kWidth>(to, FloatLane<double>::canonical(value));
  }
};

template <class Format>
struct Dots {
  using D = Doubles<Format>;
  static constexpr std::size_t kVectors = kDotLanes / D::kWidth;
  typename D::V ab[kVectors] = {}, aa[kVectors] = {}, bb[kVectors] = {};

  INLINE void add(const std::byte* a, const std::byte* b) {  // kDotLanes elements
    for (std::size_t v = 0; v < kVectors; ++v) {
      const auto x = D::read(a + v * D::kWidth * Format::kSize), y = D::read(b + v * D::kWidth * Format::kSize);
      ab[v] += x * y;
      aa[v] += x * x;
      bb[v] += y * y;
    }
  }
};

INLINE double sum_of_lanes(const void* vectors) {
  double lane[kDotLanes];
  __builtin_memcpy(lane, vectors, sizeof lane);
  for (std::size_t half = kDotLanes / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

template <class Format>
void dots_of(const void* first, const void* second, std::size_t count, double dots[3]) {
  const auto* a = static_cast<const std::byte*>(first);
  const auto* b = static_cast<const std::byte*>(second);
  Dots<Format> sums;
  std::size_t i = 0;
  for (; i + kDotLanes <= count; i += kDotLanes) sums.add(a + i * Format::kSize, b + i * Format::kSize);
  if (i < count) {
    alignas(64) std::byte padded_a[kDotLanes * Format::kSize] = {}, padded_b[kDotLanes * Format::kSize] = {};
    __builtin_memcpy(padded_a, a + i * Format::kSize, (count - i) * Format::kSize);
    __builtin_memcpy(padded_b, b + i * Format::kSize, (count - i) * Format::kSize);
    sums.add(padded_a, padded_b);
  }
  dots[0] = sum_of_lanes(sums.ab);
  dots[1] = sum_of_lanes(sums.aa);
  dots[2] = sum_of_lanes(sums.bb);
}

template <class Format>
void blend(void* target, const void* first, const void* second, std::size_t count, double by_first, double by_second) {
  using D = Doubles<Format>;
  constexpr std::size_t kBytes = D::kWidth * Format::kSize;
  auto* to = static_cast<std::byte*>(target);
  const auto* a = static_cast<const std::byte*>(first);
  const auto* b = static_cast<const std::byte*>(second);
  std::size_t i = 0, at = 0;
  for (; i + D::kWidth <= count; i += D::kWidth, at += kBytes)
    D::write(to + at, D::read(a + at) * by_first + D::read(b + at) * by_second);
  if (i == count) return;
  const std::size_t rest = (count - i) * Format::kSize;
  alignas(64) std::byte padded_a[kBytes] = {}, padded_b[kBytes] = {};
  __builtin_memcpy(padded_a, a + at, rest);
  __builtin_memcpy(padded_b, b + at, rest);
  D::write(padded_a, D::read(padded_a) * by_first + D::read(padded_b) * by_second);
  __builtin_memcpy(to + at, padded_a, rest);
}
