// Calls the low-rank kernels of the selected instruction set.
#include "kernels/low_rank.hpp"

#include "kernels/table.hpp"

namespace ringcomm::kernels {

void project(const float* row, const float* factors, std::size_t count, std::size_t rank, float* results) {
  table().project(row, factors, count, rank, results);
}

void add_outer(float* factors, const float* row, std::size_t count, std::size_t rank, const float* weights) {
  table().add_outer(factors, row, count, rank, weights);
}

void combine(float* row, const float* factors, std::size_t count, std::size_t rank, const float* weights) {
  table().combine(row, factors, count, rank, weights);
}

}  // namespace ringcomm::kernels
