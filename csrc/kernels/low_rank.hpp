// Computes products of a matrix, a row at a time, with a few long vectors. `factors` holds `rank`
// vectors of `count` elements each, contiguously. float32; every instruction set gives equal bits.
#pragma once

#include <cstddef>

namespace ringcomm::kernels {

// Computes results[k] = row . factors[k].
void project(const float* row, const float* factors, std::size_t count, std::size_t rank, float* results);

// Computes factors[k] += weights[k] row.
void add_outer(float* factors, const float* row, std::size_t count, std::size_t rank, const float* weights);

// Computes row = 0 + weights[0] factors[0] + weights[1] factors[1] ..., in this order.
void combine(float* row, const float* factors, std::size_t count, std::size_t rank, const float* weights);

}  // namespace ringcomm::kernels
