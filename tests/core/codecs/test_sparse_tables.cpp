// Sparse tables are packed by every rank and added by every rank, for 1 to 9 ranks, as a gather and
// by parts. The reference adds the rows in a map.
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "codecs/sparse_tables.hpp"

using namespace ringcomm;

namespace {

using Row = std::vector<float>;
using Rows = std::map<std::int64_t, Row>;

struct Given {  // one rank's entries of one table; values are small integers, so sums are exact
  std::vector<std::int64_t> indices;
  std::vector<float> values;
};

Given draw(std::mt19937& random, const SparseTable& table, std::size_t count) {
  Given given;
  for (std::size_t i = 0; i < count; ++i) {
    given.indices.push_back(static_cast<std::int64_t>(random() % table.rows));
    for (std::size_t k = 0; k < table.width; ++k) given.values.push_back(static_cast<float>(random() % 17) - 8);
  }
  return given;
}

std::vector<std::byte> packed(SparseTables& tables, std::size_t owners, int rank, std::vector<std::size_t>& bytes) {
  bytes = tables.packed_bytes(owners);
  std::size_t sum = 0;
  for (const std::size_t n : bytes) {
    CHECK(n % 8 == 0);
    sum += n;
  }
  std::vector<std::byte> out(sum);
  tables.pack(owners, rank, out.data());
  return out;
}

void check_sums(SparseTables& sums, std::size_t table, const SparseTable& shape, const Rows& expected) {
  std::vector<std::int64_t> indices(sums.count(table));
  std::vector<float> values(sums.count(table) * shape.width);
  const std::vector<float> weights(shape.rows < 10'000 ? shape.rows * shape.width : 0);
  sums.write(table, indices.data(), values.data(), {2.0, 1}, weights.empty() ? nullptr : weights.data());
  CHECK(indices.size() == expected.size());
  std::size_t i = 0;
  for (const auto& [index, row] : expected) {
    CHECK(indices[i] == index);
    for (std::size_t k = 0; k < shape.width; ++k) CHECK(values[i * shape.width + k] == 2 * row[k]);
    ++i;
  }
}

void sums_over_ranks() {
  std::mt19937 random(7);
  for (std::size_t ranks = 1; ranks <= 9; ++ranks)
    for (const std::size_t most : {0, 3, 40, 2000}) {
      const std::vector<SparseTable> shapes{
          {DType::float32, 3, 50}, {DType::float32, 1, 1}, {DType::float32, 8, 1ULL << 40}, {DType::float32, 0, 9}};
      std::vector<std::vector<Given>> given(ranks);
      std::vector<Rows> expected(shapes.size());
      std::vector<SparseTables> own(ranks, SparseTables(shapes));
      for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t t = 0; t < shapes.size(); ++t) {
          given[rank].push_back(draw(random, shapes[t], most == 0 ? 0 : random() % most));
          const Given& entries = given[rank].back();
          own[rank].add(t, entries.indices.data(), entries.values.data(), entries.indices.size());
          CHECK(own[rank].added(t) == entries.indices.size());
          for (std::size_t i = 0; i < entries.indices.size(); ++i) {
            Row& row = expected[t].try_emplace(entries.indices[i], shapes[t].width).first->second;
            for (std::size_t k = 0; k < row.size(); ++k) row[k] += entries.values[i * row.size() + k];
          }
        }
      std::vector<std::vector<std::byte>> received(ranks);
      std::vector<std::byte> all;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::vector<std::size_t> bytes;
        const auto one = packed(own[rank], 1, static_cast<int>(rank), bytes);
        all.insert(all.end(), one.begin(), one.end());
        const auto parts = packed(own[rank], ranks, static_cast<int>(rank), bytes);
        auto from = parts.begin();
        for (std::size_t owner = 0; owner < ranks; ++owner) {
          const auto end = from + static_cast<std::ptrdiff_t>(bytes[owner]);
          received[owner].insert(received[owner].end(), from, end);
          from = end;
        }
      }
      SparseTables gathered(shapes), by_parts(shapes);
      gathered.add_packed("x", all);
      std::vector<std::byte> sums;
      for (std::size_t owner = 0; owner < ranks; ++owner) {
        SparseTables part(shapes);
        part.add_packed("x", received[owner]);
        std::vector<std::size_t> bytes;
        const auto block = packed(part, 1, static_cast<int>(owner), bytes);
        sums.insert(sums.end(), block.begin(), block.end());
      }
      by_parts.add_packed("x", sums);
      for (std::size_t t = 0; t < shapes.size(); ++t) {
        check_sums(gathered, t, shapes[t], expected[t]);
        check_sums(by_parts, t, shapes[t], expected[t]);
      }
    }
}

template <class Act>
Error thrown(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::internal, "nothing was thrown"};
}

void errors() {
  const SparseTable table{DType::float32, 2, 10};
  const float values[4] = {};
  for (const std::int64_t index : {-1, 10}) {
    SparseTables tables({table});
    const std::int64_t indices[2] = {0, index};
    CHECK(thrown([&] { tables.add(0, indices, values, 2); }).kind() == ErrorKind::invalid);
  }
  CHECK(thrown([] { SparseTables({{DType::float32_int32, 1, 1}}); }).kind() == ErrorKind::invalid);
  const std::vector<std::vector<SparseTable>> others{
      {{DType::float32, 3, 10}}, {{DType::float64, 2, 10}}, {{DType::float32, 2, 11}}, {}, {table, table}};
  for (const auto& other : others) {
    SparseTables here({table}), there(other), sum({table});
    std::vector<std::size_t> bytes;
    auto blocks = packed(here, 1, 3, bytes);
    const auto block = packed(there, 1, 5, bytes);
    blocks.insert(blocks.end(), block.begin(), block.end());
    const Error error = thrown([&] { sum.add_packed("embedding", blocks); });
    CHECK(error.kind() == ErrorKind::mismatch);
    CHECK((error.ranks() == std::vector<int>{3, 5}));
    CHECK(std::string(error.what()).find("'embedding': rank 5 has a sparse") == 0);
  }
}

}  // namespace

int main() {
  sums_over_ranks();
  errors();
}
