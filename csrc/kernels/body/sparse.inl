// Few of many elements (kernels/quantise.hpp).

INLINE void skip_to(SparseJob& job, std::size_t most) {
  for (; job.run >= most; job.run -= most) job.gaps[job.gap_bytes++] = static_cast<unsigned char>(most);
}

// What an entry decodes to; it has been written.
INLINE float enter(SparseJob& job, float value) {
  const std::uint32_t bits = bits_as<std::uint32_t>(value);
  skip_to(job, job.signs ? kSignedSkip : kSkip);
  const auto gap = static_cast<unsigned char>(job.run);
  job.run = 0;
  if (job.signs) {
    job.gaps[job.gap_bytes++] = static_cast<unsigned char>(gap | (bits >> 31 << 7));
    ++job.entries;
    return with_sign(job.threshold, bits >> 31);
  }
  job.gaps[job.gap_bytes++] = gap;
  auto* const values = static_cast<std::uint8_t*>(job.values);
  if (!job.halves) {
    __builtin_memcpy(values + 4 * job.entries++, &bits, 4);
    return value;
  }
  // To nearest even, but no number to an infinity; a NaN stays one.
  const std::uint32_t size = bits & 0x7FFFFFFFu, nearest = bits + 0x7FFFu + (bits >> 16 & 1u);
  const std::uint32_t rounded = size > 0x7F800000u ? bits | 0x400000u : size >= 0x7F7F8000u ? bits : nearest;
  const auto half = static_cast<std::uint16_t>(rounded >> 16);
  __builtin_memcpy(values + 2 * job.entries++, &half, 2);
  return bits_as<float>(static_cast<std::uint32_t>(half) << 16);
}

// Of elements of which the largest has this magnitude; what is not finite is told in any case.
INLINE bool any_enters(const SparseJob& job, std::int32_t top, std::int32_t from) {
  return top >= from && (job.entries < job.most || top >= kInfinityBits);
}

inline constexpr std::size_t kStretch = 64, kVectors = kStretch / kLanes;

// Values, 0 behind the last, and what they decode to and what is held back of them: as if none was an entry.
struct Stretch {
  alignas(64) float values[kStretch] = {}, sent[kStretch] = {}, held[kStretch];
};

INLINE std::uint64_t lanes_of(const Ints& mask) {
  constexpr std::int32_t kBit[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  const Ints bits = mask & get<Ints>(kBit);
  std::uint32_t all[kLanes];
  __builtin_memcpy(all, &bits, sizeof all);
  for (std::size_t n = kLanes / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) all[i] |= all[i + n];
  return all[0];
}

// Of n elements, some of which reach the threshold.
NOINLINE void pick_some(SparseJob& job, Stretch& stretch, const float* owed, std::size_t n) {
  const std::int32_t from = bits_as<std::int32_t>(job.threshold);
  std::uint64_t reach = 0;
  for (std::size_t v = 0; v < kVectors; ++v)
    reach |= lanes_of(magnitude_bits(get(stretch.values + kLanes * v)) >= from) << (kLanes * v);
  std::size_t done = 0;
  for (; reach != 0; reach &= reach - 1) {
    const auto i = static_cast<std::size_t>(__builtin_ctzll(reach));
    const float value = stretch.values[i];
    const bool finite = (bits_as<std::int32_t>(value) & kMagnitudeBits) < kInfinityBits;
    const bool enters = job.entries < job.most;
    job.told = job.told && (finite || (enters && !job.signs));
    if (!finite && owed) stretch.held[i] = owed[i];
    if (!enters) continue;
    job.run += i - done;
    done = i + 1;
    stretch.sent[i] = enter(job, value);
    if (finite) stretch.held[i] = value - stretch.sent[i];
  }
  job.run += n - done;
}

void pick(SparseJob& job) {
  const std::int32_t from = bits_as<std::int32_t>(job.threshold);
  Way way{job.block, job.owed, job.block, job.next, can_stream(job.stream, job.next)};
  std::size_t i = 0;
  for (; i + kStretch <= job.count; i += kStretch) {
    Floats values[kVectors];
    Ints top = {};
    for (std::size_t v = 0; v < kVectors; ++v) {
      values[v] = way.first(i + kLanes * v);
      top = larger(top, magnitude_bits(values[v]));
    }
    if (!any_enters(job, largest_of(top), from)) {
      job.run += kStretch;
      for (std::size_t v = 0; v < kVectors; ++v) {
        put(way.decoded + i + kLanes * v, Floats{});
        way.hold(i + kLanes * v, values[v]);
      }
      continue;
    }
    Stretch stretch;
    __builtin_memcpy(stretch.values, values, sizeof values);
    __builtin_memcpy(stretch.held, values, sizeof values);
    pick_some(job, stretch, way.owed ? way.owed + i : nullptr, kStretch);
    __builtin_memcpy(way.decoded + i, stretch.sent, sizeof stretch.sent);
    for (std::size_t v = 0; v < kVectors; ++v) way.hold(i + kLanes * v, get(stretch.held + kLanes * v));
  }
  const std::size_t n = job.count - i;
  if (n == 0) return;
  Stretch stretch;
  __builtin_memcpy(stretch.values, job.block + i, n * sizeof(float));
  if (job.owed) for (std::size_t k = 0; k < n; ++k) stretch.values[k] += job.owed[i + k];
  __builtin_memcpy(stretch.held, stretch.values, sizeof stretch.values);
  pick_some(job, stretch, job.owed ? job.owed + i : nullptr, n);
  __builtin_memcpy(job.block + i, stretch.sent, n * sizeof(float));
  if (job.next) __builtin_memcpy(job.next + i, stretch.held, n * sizeof(float));
}

void add(float* target, const float* a, const float* b, std::size_t count) {
  if (!b) return static_cast<void>(__builtin_memmove(target, a, count * sizeof(float)));
  for (std::size_t i = 0; i < count; ++i) target[i] = a[i] + b[i];
}
