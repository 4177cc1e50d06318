// Implements the selection of few elements among many (kernels/quantise.hpp).

// Appends `count` bits, at most 32. Higher bits of `bits` must be zero.
INLINE void put_bits(SparseJob& job, std::uint64_t bits, unsigned count) {
  job.bits |= bits << job.bit_count;
  job.bit_count += count;
  if (job.bit_count < 32) return;
  const auto whole = static_cast<std::uint32_t>(job.bits);
  __builtin_memcpy(job.gaps + job.gap_bytes, &whole, 4);
  job.gap_bytes += 4;
  job.bits >>= 32;
  job.bit_count -= 32;
}

// Appends the code of the current gap, and then the `behind_count` bits of `behind`.
INLINE void put_gap(SparseJob& job, std::uint64_t behind, unsigned behind_count) {
  const unsigned last = job.low + behind_count, most = 31 - last;
  std::size_t ones = job.run >> job.low;
  for (; ones > most; ones -= most) put_bits(job, (std::uint64_t{1} << most) - 1, most);
  const std::uint64_t low = job.run & ((std::size_t{1} << job.low) - 1);
  const std::uint64_t rest = low | behind << job.low;
  put_bits(job, ((std::uint64_t{1} << ones) - 1) | rest << (ones + 1), static_cast<unsigned>(ones) + 1 + last);
  job.run = 0;
}

// Writes an entry. Returns the value it decodes to.
INLINE float enter(SparseJob& job, float value) {
  const std::uint32_t bits = bits_as<std::uint32_t>(value);
  if (job.signs) {
    put_gap(job, bits >> 31, 1);
    ++job.entries;
    return with_sign(job.threshold, bits >> 31);
  }
  put_gap(job, 0, 0);
  auto* const values = static_cast<std::uint8_t*>(job.values);
  if (!job.halves) {
    __builtin_memcpy(values + 4 * job.entries++, &bits, 4);
    return value;
  }
  // Rounds to nearest even, but never a finite number to infinity; a NaN stays a NaN.
  const std::uint32_t size = bits & 0x7FFFFFFFu, nearest = bits + 0x7FFFu + (bits >> 16 & 1u);
  const std::uint32_t rounded = size > 0x7F800000u ? bits | 0x400000u : size >= 0x7F7F8000u ? bits : nearest;
  const auto half = static_cast<std::uint16_t>(rounded >> 16);
  __builtin_memcpy(values + 2 * job.entries++, &half, 2);
  return bits_as<float>(static_cast<std::uint32_t>(half) << 16);
}

// Returns true if a stretch with the largest magnitude `top` may contain an entry. Values that are
// not finite are always examined.
INLINE bool any_enters(const SparseJob& job, std::int32_t top, std::int32_t from) {
  return top >= from && (job.entries < job.most || top >= kInfinityBits);
}

inline constexpr std::size_t kStretch = 64, kVectors = kStretch / kLanes;

INLINE std::uint64_t lanes_of(const Ints& mask) {
  constexpr std::int32_t kBit[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  return static_cast<std::uint32_t>(joined(mask & get<Ints>(kBit), [](auto a, auto b) { return a | b; }));
}

// Processes a stretch (kStretch elements) that has values which reach the threshold.
INLINE void pick_some(SparseJob& job, const Way& way, std::size_t first, const Floats* loaded) {
  alignas(64) float values[kStretch], held[kStretch], sent[kStretch] = {};
  __builtin_memcpy(values, loaded, sizeof values);
  __builtin_memcpy(held, loaded, sizeof held);
  std::uint64_t reach = 0;
  for (std::size_t v = 0; v < kVectors; ++v)
    reach |= lanes_of(magnitude_bits(loaded[v]) >= bits_as<std::int32_t>(job.threshold)) << (kLanes * v);
  std::size_t done = 0;
  for (; reach != 0; reach &= reach - 1) {
    const auto i = static_cast<std::size_t>(__builtin_ctzll(reach));
    const bool finite = (bits_as<std::int32_t>(values[i]) & kMagnitudeBits) < kInfinityBits;
    const bool enters = job.entries < job.most;
    job.told = job.told && (finite || (enters && !job.signs));
    if (!finite && way.residual) held[i] = way.residual[first + i];
    if (!enters) continue;
    job.run += i - done;
    done = i + 1;
    sent[i] = enter(job, values[i]);
    if (finite) held[i] = values[i] - sent[i];
  }
  job.run += kStretch - done;
  __builtin_memcpy(way.decoded + first, sent, sizeof sent);
  for (std::size_t i = 0; i < kStretch; i += kLanes) way.hold(first + i, get(held + i));
}

void pick_stretches(SparseJob& given, const Way& along, std::size_t count) {
  SparseJob job = given;
  const Way way = along;
  const std::int32_t from = bits_as<std::int32_t>(job.threshold);
  for (std::size_t first = 0; first < count; first += kStretch) {
    Floats values[kVectors];
    Ints top = {};
    for (std::size_t v = 0; v < kVectors; ++v) {
      values[v] = way.first(first + kLanes * v);
      top = larger(top, magnitude_bits(values[v]));
    }
    if (any_enters(job, largest_of(top), from)) {
      pick_some(job, way, first, values);
      continue;
    }
    job.run += kStretch;
    for (std::size_t v = 0; v < kVectors; ++v) {
      put(way.decoded + first + kLanes * v, Floats{});
      way.hold(first + kLanes * v, values[v]);
    }
  }
  given = job;
}

void pick(SparseJob& job) {
  const std::size_t whole = job.count / kStretch * kStretch, rest = job.count - whole;
  pick_stretches(job, {job.block, job.residual, job.block, job.next, can_stream(job.stream, job.next)}, whole);
  if (rest == 0) return;
  alignas(64) float block[kStretch] = {}, residual[kStretch] = {}, next[kStretch];
  __builtin_memcpy(block, job.block + whole, rest * sizeof(float));
  if (job.residual) __builtin_memcpy(residual, job.residual + whole, rest * sizeof(float));
  pick_stretches(job, {block, job.residual ? residual : nullptr, block, next, false}, kStretch);
  job.run -= kStretch - rest;  // the padding zeros are not part of the gap
  __builtin_memcpy(job.block + whole, block, rest * sizeof(float));
  if (job.next) __builtin_memcpy(job.next + whole, next, rest * sizeof(float));
}

void add(float* target, const float* a, const float* b, std::size_t count) {
  if (!b) return static_cast<void>(__builtin_memmove(target, a, count * sizeof(float)));
  for (std::size_t i = 0; i < count; ++i) target[i] = a[i] + b[i];
}
