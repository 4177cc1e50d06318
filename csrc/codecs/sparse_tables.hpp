// Sums the rows of sparse matrices ("tables") over ranks: gradients of embeddings. A rank packs the
// rows of all its tables into one block of bytes per receiver. A receiver adds the blocks of all
// ranks. Rows with equal indices are added, within a rank before they are sent and between ranks
// in rank order, so every rank computes equal bits.
//
// A block is a row of 64-bit numbers (its bytes, the sender's rank, the number of tables, then for
// each table its dtype, width, rows and entries), the indices of all tables, and their values.
// Each part is padded to 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/scale.hpp"
#include "base/types.hpp"
#include "kernels/rows.hpp"

namespace ringcomm {

struct SparseTable {
  DType dtype = DType::float32;
  std::size_t width = 1;   // elements of a row
  std::uint64_t rows = 0;  // indices are smaller
  bool operator==(const SparseTable&) const = default;
};

class SparseTables {
 public:
  explicit SparseTables(std::vector<SparseTable> tables);

  // Adds `count` entries. The arrays must exist until the last call of pack() and write(). Throws
  // if an index is not in the table.
  void add(std::size_t table, const std::int64_t* indices, const void* values, std::size_t count);

  // Adds consecutive blocks, which must exist as long. Throws a mismatch that names the operation
  // and two ranks if tables differ between blocks, or from this rank's.
  void add_packed(const std::string& operation, std::span<const std::byte> blocks);

  std::size_t added(std::size_t table) const { return sums_[table].entries.size(); }  // entries, with duplicates
  std::size_t count(std::size_t table);                                               // distinct rows

  // Writes the sums of a table, sorted by index. `indices` and `values` have room for count().
  // `next`: the rows of the dense table with these indices are fetched into the caches, because the
  // caller updates them next. Other ranks' rows are not there yet. May be null.
  void write(std::size_t table, std::int64_t* indices, void* values, kernels::Scale by, const void* next = nullptr);

  // Packs the sums into a block for each of `owners` ranks; owner k's block has the k-th part of
  // each table's rows. packed_bytes() returns the size of each block.
  std::vector<std::size_t> packed_bytes(std::size_t owners);
  void pack(std::size_t owners, int rank, std::byte* out);

 private:
  struct Sum {  // entries of one table; once merged: sorted, with the first entry of each distinct row
    std::vector<kernels::RowEntry> entries;
    std::vector<std::size_t> firsts;  // then the number of entries
    bool merged = false;
  };

  std::size_t row_bytes(std::size_t table) const;
  Sum& merged(std::size_t table);
  void write_rows(std::size_t table, std::size_t first, std::size_t last, std::byte* indices, std::byte* values,
                  kernels::Scale by, const std::byte* next = nullptr);
  std::vector<std::size_t> bounds(std::size_t table, std::size_t owners);  // distinct rows before each owner's part
  void check(const std::string& operation, const std::byte* first, const std::byte* block) const;

  std::vector<SparseTable> tables_;
  std::vector<Sum> sums_;
};

}  // namespace ringcomm
