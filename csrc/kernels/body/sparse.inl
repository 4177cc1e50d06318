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

void pick(SparseJob& job) {
  constexpr std::size_t kStretch = 64;
  const std::int32_t from = bits_as<std::int32_t>(job.threshold);
  for (std::size_t done = 0; done < job.count; done += kStretch) {
    const std::size_t n = job.count - done < kStretch ? job.count - done : kStretch;
    alignas(64) float values[kStretch];
    float* const block = job.block + done;
    if (n == kStretch) {
      for (std::size_t i = 0; i < kStretch; i += 16)
        put16(values + i, job.owed ? at16(block + i) + at16(job.owed + done + i) : at16(block + i));
    } else {
      for (std::size_t i = 0; i < kStretch; ++i)
        values[i] = i >= n ? 0.0f : job.owed ? block[i] + job.owed[done + i] : block[i];
    }
    const bool any = any_enters(job, largest(values, kStretch), from);
    if (job.next) __builtin_memcpy(job.next + done, values, n * sizeof(float));
    __builtin_memset(block, 0, n * sizeof(float));
    if (!any) {
      job.run += n;
      continue;
    }
    for (std::size_t first = 0; first < n; first += 16) {
      const std::size_t end = n - first < 16 ? n : first + 16;
      if (!any_enters(job, largest(values + first, 16), from)) {
        job.run += end - first;
        continue;
      }
      for (std::size_t i = first; i < end; ++i) {
        const std::int32_t bits = bits_as<std::int32_t>(values[i]) & kMagnitudeBits;
        const bool finite = bits < kInfinityBits, enters = bits >= from && job.entries < job.most;
        job.told = job.told && (finite || (enters && !job.signs));
        if (job.next && !finite) job.next[done + i] = job.owed[done + i];
        if (!enters) {
          ++job.run;
          continue;
        }
        const float sent = block[i] = enter(job, values[i]);
        if (job.next && finite) job.next[done + i] = values[i] - sent;
      }
    }
  }
}

void add(float* target, const float* a, const float* b, std::size_t count) {
  if (!b) return static_cast<void>(__builtin_memmove(target, a, count * sizeof(float)));
  for (std::size_t i = 0; i < count; ++i) target[i] = a[i] + b[i];
}
