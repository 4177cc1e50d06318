#include "codecs/sparse_tables.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/cuts.hpp"
#include "base/error.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {
namespace {

using kernels::RowEntry;

constexpr std::size_t kNumber = sizeof(std::uint64_t);
constexpr std::size_t kHead = 3, kPerTable = 4;  // numbers of a block's head, and for each table

constexpr std::size_t kAhead = 8;  // entries between a prefetch and its use

void prefetch_row(const std::byte* row, std::size_t nbytes) {
  for (std::size_t at = 0; at < std::min<std::size_t>(nbytes, 4 * kLine); at += kLine) __builtin_prefetch(row + at);
}

std::uint64_t number(const std::byte* block, std::size_t i) {
  std::uint64_t value = 0;
  std::memcpy(&value, block + i * kNumber, kNumber);
  return value;
}

std::uint64_t entries_of(const std::byte* block, std::size_t table) {
  return number(block, kHead + kPerTable * table + 3);
}

SparseTable table_of(const std::byte* block, std::size_t table) {
  const std::size_t at = kHead + kPerTable * table;
  return {static_cast<DType>(number(block, at)), number(block, at + 1), number(block, at + 2)};
}

std::string text_of(const SparseTable& table) {
  return concat(info(table.dtype).name, " (", table.rows, ", ", table.width, ")");
}

// Sorts by index, and keeps the order of equal indices. A radix sort of the bits in which indices
// differ, by digits of equal length, at most 11 bits.
void sort_by_index(std::vector<RowEntry>& entries) {
  const auto ordered = [](const RowEntry& a, const RowEntry& b) { return a.index < b.index; };
  if (std::is_sorted(entries.begin(), entries.end(), ordered)) return;
  if (entries.size() < 256) return std::stable_sort(entries.begin(), entries.end(), ordered);
  std::uint64_t differing = 0;
  for (const RowEntry& entry : entries) differing |= entry.index ^ entries.front().index;
  constexpr unsigned kMost = 11;
  const auto bits = static_cast<unsigned>(std::bit_width(differing)), digits = (bits + kMost - 1) / kMost,
             length = (bits + digits - 1) / digits;
  const std::uint64_t mask = (std::uint64_t{1} << length) - 1;
  std::vector<RowEntry> other(entries.size());
  std::array<std::size_t, 1 << kMost> starts;
  for (unsigned shift = 0; shift < bits; shift += length) {
    if ((differing >> shift & mask) == 0) continue;
    const std::span used(starts.data(), mask + 1);
    std::ranges::fill(used, 0);
    for (const RowEntry& entry : entries) ++used[entry.index >> shift & mask];
    std::size_t sum = 0;
    for (std::size_t& start : used) sum += std::exchange(start, sum);
    for (const RowEntry& entry : entries) other[used[entry.index >> shift & mask]++] = entry;
    entries.swap(other);
  }
}

}  // namespace

SparseTables::SparseTables(std::vector<SparseTable> tables) : tables_(std::move(tables)), sums_(tables_.size()) {
  for (const SparseTable& table : tables_)
    if (!kernels::reduces(table.dtype, Op::sum)) throw invalid("sparse ", info(table.dtype).name, " cannot be added");
}

std::size_t SparseTables::row_bytes(std::size_t table) const {
  return tables_[table].width * size_of(tables_[table].dtype);
}

void SparseTables::add(std::size_t table, const std::int64_t* indices, const void* values, std::size_t count) {
  Sum& sum = sums_[table];
  sum.entries.reserve(sum.entries.size() + count);
  const std::size_t step = row_bytes(table);
  const auto* row = static_cast<const std::byte*>(values);
  for (std::size_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(indices[i]);
    if (index >= tables_[table].rows)
      throw invalid("row index ", indices[i], " is not in a sparse tensor of ", tables_[table].rows, " rows");
    sum.entries.push_back({index, row + i * step});
  }
  sum.merged = false;
}

void SparseTables::check(const std::string& operation, const std::byte* first, const std::byte* block) const {
  const auto rank = static_cast<int>(number(block, 1)), first_rank = static_cast<int>(number(first, 1));
  const auto differ = [&](const std::string& theirs, const std::string& ours) {
    return Error(ErrorKind::mismatch,
                 concat("'", operation, "': rank ", rank, " has a sparse ", theirs, " where rank ", first_rank, " has ",
                        ours, "; shapes and dtypes must be equal on all ranks"),
                 {first_rank, rank});
  };
  if (number(block, 2) != number(first, 2))
    throw differ(concat("list of ", number(block, 2)), concat("one of ", number(first, 2)));
  for (std::size_t t = 0; t < number(first, 2); ++t)
    if (table_of(block, t) != table_of(first, t))
      throw differ(text_of(table_of(block, t)), text_of(table_of(first, t)));
}

void SparseTables::add_packed(const std::string& operation, std::span<const std::byte> blocks) {
  const auto every_block = [&](auto act) {
    for (std::size_t at = 0; at < blocks.size(); at += number(blocks.data() + at, 0)) act(blocks.data() + at);
  };
  every_block([&](const std::byte* block) { check(operation, blocks.data(), block); });
  every_block([&](const std::byte* block) {
    const std::byte* indices = block + (kHead + kPerTable * tables_.size()) * kNumber;
    const std::byte* values = indices;
    for (std::size_t t = 0; t < tables_.size(); ++t) values += entries_of(block, t) * kNumber;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const std::size_t count = entries_of(block, t), bytes = count * row_bytes(t);
      add(t, reinterpret_cast<const std::int64_t*>(indices), values, count);
      indices += count * kNumber;
      values += round_up(bytes, kNumber);
    }
  });
}

SparseTables::Sum& SparseTables::merged(std::size_t table) {
  Sum& sum = sums_[table];
  if (sum.merged) return sum;
  sort_by_index(sum.entries);
  sum.firsts.clear();
  for (std::size_t i = 0; i < sum.entries.size(); ++i)
    if (i == 0 || sum.entries[i].index != sum.entries[i - 1].index) sum.firsts.push_back(i);
  sum.firsts.push_back(sum.entries.size());
  sum.merged = true;
  return sum;
}

std::size_t SparseTables::count(std::size_t table) { return merged(table).firsts.size() - 1; }

void SparseTables::write_rows(std::size_t table, std::size_t first, std::size_t last, std::byte* indices,
                              std::byte* values, kernels::Scale by, const std::byte* next) {
  const Sum& sum = merged(table);
  const auto& [dtype, width, rows] = tables_[table];
  const std::size_t step = row_bytes(table);
  for (std::size_t k = first; k < last; ++k, indices += kNumber)
    std::memcpy(indices, &sum.entries[sum.firsts[k]].index, kNumber);
  if (dtype == DType::float32) {  // reduce_many() takes five times as long for a short row
    return kernels::sum_rows({.entries = sum.entries.data(),
                              .entry_count = sum.entries.size(),
                              .firsts = sum.firsts.data() + first,
                              .count = last - first,
                              .width = width,
                              .out = values,
                              .by = by,
                              .next = next});
  }
  std::vector<const void*> sources;
  for (std::size_t k = first; k < last && step > 0; ++k, values += step) {
    const std::size_t begin = sum.firsts[k], end = sum.firsts[k + 1];
    if (next) prefetch_row(next + sum.entries[begin].index * step, step);
    for (std::size_t i = begin; i < end; ++i)
      if (i + kAhead < sum.entries.size()) prefetch_row(sum.entries[i + kAhead].values, step);
    if (end == begin + 1 && by.identity()) {
      std::memcpy(values, sum.entries[begin].values, step);
      continue;
    }
    sources.clear();
    for (std::size_t i = begin; i < end; ++i) sources.push_back(sum.entries[i].values);
    void* target = values;
    kernels::reduce_many(dtype, Op::sum, {&target, 1}, sources, width, {}, by);
  }
}

void SparseTables::write(std::size_t table, std::int64_t* indices, void* values, kernels::Scale by, const void* next) {
  write_rows(table, 0, count(table), reinterpret_cast<std::byte*>(indices), static_cast<std::byte*>(values), by,
             static_cast<const std::byte*>(next));
}

std::vector<std::size_t> SparseTables::bounds(std::size_t table, std::size_t owners) {
  const Sum& sum = merged(table);
  std::vector<std::size_t> result{0};
  for (std::size_t owner = 0; owner < owners; ++owner) {
    const std::uint64_t end = split(tables_[table].rows, owners, owner).end();
    const auto found =
        std::partition_point(sum.firsts.begin() + static_cast<std::ptrdiff_t>(result.back()), sum.firsts.end() - 1,
                             [&](std::size_t i) { return sum.entries[i].index < end; });
    result.push_back(static_cast<std::size_t>(found - sum.firsts.begin()));
  }
  return result;
}

std::vector<std::size_t> SparseTables::packed_bytes(std::size_t owners) {
  std::vector<std::size_t> bytes(owners, (kHead + kPerTable * tables_.size()) * kNumber);
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const std::vector<std::size_t> cuts = bounds(t, owners);
    for (std::size_t owner = 0; owner < owners; ++owner) {
      const std::size_t entries = cuts[owner + 1] - cuts[owner];
      bytes[owner] += entries * kNumber + round_up(entries * row_bytes(t), kNumber);
    }
  }
  return bytes;
}

void SparseTables::pack(std::size_t owners, int rank, std::byte* out) {
  const std::vector<std::size_t> bytes = packed_bytes(owners);
  std::vector<std::vector<std::size_t>> cuts;
  for (std::size_t t = 0; t < tables_.size(); ++t) cuts.push_back(bounds(t, owners));
  for (std::size_t owner = 0; owner < owners; out += bytes[owner], ++owner) {
    std::vector<std::uint64_t> head{bytes[owner], static_cast<std::uint64_t>(rank), tables_.size()};
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const SparseTable& table = tables_[t];
      const std::size_t entries = cuts[t][owner + 1] - cuts[t][owner];
      head.insert(head.end(), {static_cast<std::uint64_t>(table.dtype), table.width, table.rows, entries});
    }
    std::memcpy(out, head.data(), head.size() * kNumber);
    std::byte* indices = out + head.size() * kNumber;
    std::byte* values = indices;
    for (std::size_t t = 0; t < tables_.size(); ++t) values += (cuts[t][owner + 1] - cuts[t][owner]) * kNumber;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const std::size_t entries = cuts[t][owner + 1] - cuts[t][owner], used = entries * row_bytes(t);
      write_rows(t, cuts[t][owner], cuts[t][owner + 1], indices, values, {});
      std::memset(values + used, 0, round_up(used, kNumber) - used);
      indices += entries * kNumber;
      values += round_up(used, kNumber);
    }
  }
}

}  // namespace ringcomm
