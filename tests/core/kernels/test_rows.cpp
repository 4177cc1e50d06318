// Sums of scattered rows equal those of reduce_many(), bit by bit, on every instruction set: for
// widths around the sizes of vectors, rows of one to many entries, scales, NaN and infinity.
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "kernels/kernels.hpp"
#include "kernels/rows.hpp"

using namespace ringcomm;

namespace {

using Floats = std::vector<float>;

struct Given {
  std::size_t width = 0;
  std::vector<Floats> values;  // one for each entry
  std::vector<kernels::RowEntry> entries;
  std::vector<std::size_t> firsts;
};

Given draw(std::mt19937& random, std::size_t width, std::size_t rows) {
  using Limits = std::numeric_limits<float>;
  constexpr float kOdd[] = {-0.0f,
                            Limits::infinity(),
                            -Limits::infinity(),
                            Limits::quiet_NaN(),
                            -Limits::quiet_NaN(),
                            Limits::denorm_min(),
                            Limits::max()};
  std::uniform_real_distribution<float> usual(-3, 3);
  Given given{width, {}, {}, {0}};
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t count = random() % 3 != 0 ? 1 : 1 + random() % 12;
    for (std::size_t i = 0; i < count; ++i) {
      Floats values(width);
      for (float& value : values) value = random() % 9 == 0 ? kOdd[random() % std::size(kOdd)] : usual(random);
      given.values.push_back(values);
      given.entries.push_back({row, nullptr});
    }
    given.firsts.push_back(given.values.size());
  }
  for (std::size_t i = 0; i < given.values.size(); ++i)
    given.entries[i].values = reinterpret_cast<const std::byte*>(given.values[i].data());
  return given;
}

Floats expected(const Given& given, kernels::Scale by) {
  const std::size_t rows = given.firsts.size() - 1;
  Floats sums(rows * given.width);
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<const void*> sources;
    for (std::size_t i = given.firsts[row]; i < given.firsts[row + 1]; ++i) sources.push_back(given.entries[i].values);
    void* target = sums.data() + row * given.width;
    kernels::reduce_many(DType::float32, Op::sum, {&target, 1}, sources, given.width, {}, by);
  }
  return sums;
}

void check_rows(const Given& given, kernels::Scale by, bool updates) {
  const std::size_t rows = given.firsts.size() - 1, bytes = rows * given.width * sizeof(float);
  const Floats want = expected(given, by), table(updates ? rows * given.width : 0);
  constexpr std::byte kUnwritten{0x5A};
  std::vector<std::byte> got(bytes + 4, kUnwritten);
  kernels::sum_rows({.entries = given.entries.data(),
                     .entry_count = given.entries.size(),
                     .firsts = given.firsts.data(),
                     .count = rows,
                     .width = given.width,
                     .out = got.data(),
                     .by = by,
                     .next = updates ? reinterpret_cast<const std::byte*>(table.data()) : nullptr});
  CHECK(bytes == 0 || std::memcmp(got.data(), want.data(), bytes) == 0);
  for (std::size_t i = bytes; i < got.size(); ++i) CHECK(got[i] == kUnwritten);
}

void every_instruction_set() {
  std::mt19937 random(5);
  const std::string usual(kernels::instruction_set());
  for (const std::size_t width : {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 64, 100, 257}) {
    for (const std::size_t rows : {0, 1, 2, 40}) {
      const Given given = draw(random, width, rows);
      for (const kernels::Scale by : {kernels::Scale{}, {1.0, 2}, {1.0, 3}, {2.5, 7}, {-0.5, 1}, {2.0, 2}})
        for (const char* set : {"generic", "avx2", "avx512", "neon"})
          if (kernels::use_instruction_set(set)) check_rows(given, by, rows == 40);
    }
  }
  CHECK(kernels::use_instruction_set(usual));
}

}  // namespace

int main() {
  every_instruction_set();
  return 0;
}
