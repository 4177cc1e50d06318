// Adds rows of float32 that are scattered in memory, such as gradients of embeddings. Every
// instruction set gives equal bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/scale.hpp"

namespace ringcomm::kernels {

struct RowEntry {
  std::uint64_t index;  // the row that `values` are added to
  const std::byte* values;
};

// Computes `count` rows of `width` elements. Row k is the sum of the entries firsts[k] to
// firsts[k + 1] - 1, in this order; then it is scaled. A row of one entry that is not scaled keeps
// all bits.
struct RowsJob {
  const RowEntry* entries = nullptr;
  std::size_t entry_count = 0;
  const std::size_t* firsts = nullptr;  // count + 1 numbers
  std::size_t count = 0, width = 0;
  std::byte* out = nullptr;
  Scale by;
  // Rows of a dense table that the caller updates next. Those with the entries' indices are fetched
  // into the caches. May be null.
  const std::byte* next = nullptr;
};
void sum_rows(const RowsJob& job);

}  // namespace ringcomm::kernels
