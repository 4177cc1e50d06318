// Computes products of a row with a few long vectors (kernels/low_rank.hpp). Every instruction set
// uses 16 lanes, so that dot products have one order of summation. Up to four vectors are processed
// at a time, with their sums in registers.

using F16 = Vector<float, 16>;

INLINE F16 at16(const float* from) { return get<F16>(from); }
INLINE F16 at16_or_zeros(const float* from, std::size_t n) {
  F16 value = {};
  __builtin_memcpy(&value, from, n * sizeof(float));
  return value;
}

template <std::size_t together>
INLINE void project_some(const float* row, const float* factors, std::size_t count, float* results) {
  F16 sums[together] = {};
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const F16 value = at16(row + i);
    for (std::size_t k = 0; k < together; ++k) sums[k] += value * at16(factors + k * count + i);
  }
  if (i < count) {
    const F16 value = at16_or_zeros(row + i, count - i);
    for (std::size_t k = 0; k < together; ++k) sums[k] += value * at16_or_zeros(factors + k * count + i, count - i);
  }
  for (std::size_t k = 0; k < together; ++k) results[k] = sum_of(bits_as<Sixteen<>>(sums[k]));
}

void project(const float* row, const float* factors, std::size_t count, std::size_t rank, float* results) {
  std::size_t k = 0;
  for (; k + 4 <= rank; k += 4) project_some<4>(row, factors + k * count, count, results + k);
  for (; k < rank; ++k) project_some<1>(row, factors + k * count, count, results + k);
}

void add_outer(float* factors, const float* row, std::size_t count, std::size_t rank, const float* weights) {
  for (std::size_t k = 0; k < rank; ++k) {
    float* const factor = factors + k * count;
    const float weight = weights[k];
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) put(factor + i, at16(factor + i) + at16(row + i) * weight);
    for (; i < count; ++i) factor[i] = factor[i] + row[i] * weight;
  }
}

template <std::size_t together>
INLINE void combine_some(float* row, const float* factors, std::size_t count, const float* weights, bool first) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    F16 sum = {};
    if (!first) sum = at16(row + i);
    for (std::size_t k = 0; k < together; ++k) sum += at16(factors + k * count + i) * weights[k];
    put(row + i, sum);
  }
  for (; i < count; ++i) {
    float sum = first ? 0.0f : row[i];
    for (std::size_t k = 0; k < together; ++k) sum = sum + factors[k * count + i] * weights[k];
    row[i] = sum;
  }
}

void combine(float* row, const float* factors, std::size_t count, std::size_t rank, const float* weights) {
  std::size_t k = 0;
  for (; k + 4 <= rank; k += 4) combine_some<4>(row, factors + k * count, count, weights + k, k == 0);
  for (; k < rank; ++k) combine_some<1>(row, factors + k * count, count, weights + k, k == 0);
}
