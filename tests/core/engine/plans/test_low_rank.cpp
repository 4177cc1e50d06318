// Tests matrices that are sent as two thin factors: exact cases, error feedback, and equal bits on
// all ranks.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/plans/low_rank.hpp"
#include "engine_ranks.hpp"
#include "kernels/kernels.hpp"
#include "kernels/low_rank.hpp"

using namespace ringcomm;

namespace {

using Floats = std::vector<float>;

Floats uniform(std::size_t count, Random& random) {
  Floats values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<std::int64_t>(random() >> 32) - (1LL << 31)) * 0x1p-31f;
  return values;
}

bool equal_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::array<Floats, 3> products(const Floats& row, const Floats& factors, const Floats& weights) {
  const std::size_t rank = weights.size();
  Floats dots(rank), outer = factors, sum(row.size());
  kernels::project(row.data(), factors.data(), row.size(), rank, dots.data());
  kernels::add_outer(outer.data(), row.data(), row.size(), rank, weights.data());
  kernels::combine(sum.data(), factors.data(), row.size(), rank, weights.data());
  return {dots, outer, sum};
}

void every_instruction_set() {
  Random random(1);
  const std::string usual(kernels::instruction_set());
  for (const std::size_t count : {1, 2, 15, 16, 17, 64, 100, 1023}) {
    for (const std::size_t rank : {1, 2, 3, 4, 5, 8, 9}) {
      const Floats row = uniform(count, random), factors = uniform(count * rank, random), by = uniform(rank, random);
      CHECK(kernels::use_instruction_set("generic"));
      const auto want = products(row, factors, by);
      for (std::size_t k = 0; k < rank; ++k) {
        double dot = 0;
        for (std::size_t i = 0; i < count; ++i)
          dot += static_cast<double>(row[i]) * static_cast<double>(factors[k * count + i]);
        CHECK(std::abs(dot - static_cast<double>(want[0][k])) < 1e-4);
      }
      for (const char* set : {"avx2", "avx512", "neon"}) {
        if (!kernels::use_instruction_set(set)) continue;
        const auto got = products(row, factors, by);
        for (std::size_t i = 0; i < want.size(); ++i) CHECK(equal_bits(got[i], want[i]));
      }
    }
  }
  CHECK(kernels::use_instruction_set(usual));
}

// Returns the values on all ranks after each step of a plan. `fill(rank, step)` returns a rank's
// matrices.
template <class Fill, class Look>
void steps(int size, const LowRank& shape, DType dtype, std::size_t count, int number, std::uint64_t dense_steps,
           const Fill& fill, const Look& look) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  std::vector<Floats> results(static_cast<std::size_t>(size)), residual(results.size());
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    const auto me = static_cast<std::size_t>(rank);
    std::vector<std::byte> data(count * size_of(dtype));
    PlanBucket bucket{dtype, count, data.data()};
    bucket.wire.feedback = true;
    bucket.wire.first_steps = dense_steps;
    bucket.low_rank = shape;
    const auto plan = r.engine->make_plan(0, "model", {bucket}, Op::sum, {}, {}, 0, nullptr, 0);
    for (int step = 0; step < number; ++step) {
      const Floats values = fill(rank, step);
      if (dtype == DType::float32)
        std::memcpy(data.data(), values.data(), data.size());
      else
        kernels::cast(dtype, data.data(), DType::float32, values.data(), count);
      CHECK(!r.outcome(plan->finish({})));
      results[me].resize(count);
      if (dtype == DType::float32)
        std::memcpy(results[me].data(), data.data(), data.size());
      else
        kernels::cast(DType::float32, results[me].data(), dtype, data.data(), count);
      residual[me].assign(plan->feedback()->residual(0).begin(), plan->feedback()->residual(0).end());
      end.arrive_and_wait();
      if (rank == 0) {
        for (const Floats& other : results) CHECK(equal_bits(other, results[0]));
        look(step, results[0], residual);
      }
      end.arrive_and_wait();
    }
    plan->close();
    end.arrive_and_wait();
    r.engine->leave();
  });
}

LowRank shape_of(std::size_t rank, bool warm, std::vector<LowRank::Matrix> matrices) {
  return {rank, warm, std::move(matrices)};
}

// Checks that Σ results + Σ residuals = Σ inputs, also after dense steps.
void nothing_is_lost(int size, bool warm, std::uint64_t seed) {
  const LowRank shape = shape_of(3, warm, {{0, 20, 33}, {672, 1, 50}, {736, 40, 2}, {816, 7, 7}});
  constexpr std::size_t kCount = 865;
  std::vector<double> given(kCount), arrived(kCount);
  std::mutex mutex;
  std::vector<Random> random;
  for (int rank = 0; rank < size; ++rank) random.emplace_back(seed + static_cast<std::uint64_t>(rank));
  steps(
      size, shape, DType::float32, kCount, 12, 2,
      [&](int rank, int) {
        Floats values = uniform(kCount, random[static_cast<std::size_t>(rank)]);
        std::fill_n(values.begin() + 660, 12, 0.0f);  // between the matrices
        std::fill_n(values.begin() + 722, 14, 0.0f);
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < kCount; ++i) given[i] += static_cast<double>(values[i]);
        return values;
      },
      [&](int step, const Floats& result, const std::vector<Floats>& residual) {
        CHECK((residual[0][0] != 0) == (step >= 2));
        for (std::size_t i = 0; i < kCount; ++i) {
          arrived[i] += static_cast<double>(result[i]);
          double left = 0;
          for (const Floats& one : residual) left += static_cast<double>(one[i]);
          CHECK(std::abs(given[i] - arrived[i] - left) < 1e-3);
        }
      });
}

// Checks that the sum is exact if all matrices have the same span of few columns.
void low_rank_is_exact(int size, DType dtype, std::uint64_t seed) {
  constexpr std::size_t kRows = 24, kColumns = 31;
  Random shared(seed);
  const Floats left = uniform(kRows * 2, shared), right = uniform(kColumns * 2, shared);
  const LowRank shape = shape_of(4, true, {{0, kRows, kColumns}});
  const auto matrix = [&](int rank) {
    Floats values(kRows * kColumns);
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t k = 0; k < 2; ++k)
        values[i] += static_cast<float>(rank + 1) * left[i / kColumns * 2 + k] * right[i % kColumns * 2 + k];
    return values;
  };
  Floats want(kRows * kColumns);
  for (int rank = 0; rank < size; ++rank) {
    const Floats one = matrix(rank);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += one[i];
  }
  steps(
      size, shape, dtype, want.size(), 4, 0, [&](int rank, int) { return matrix(rank); },
      [&](int, const Floats& result, const std::vector<Floats>&) {
        const float bound = dtype == DType::bfloat16 ? 0.5f : 1e-3f;
        for (std::size_t i = 0; i < want.size(); ++i) CHECK(std::abs(result[i] - want[i]) < bound);
      });
}

// Checks that zeros, also in the first step, keep the starting factors. Infinities and NaN are
// reported, and do not persist.
void zeros_and_infinities(int size) {
  constexpr std::size_t kCount = 12 * 12;
  const LowRank shape = shape_of(2, true, {{0, 12, 12}});
  const auto fill = [&](int rank, int step) {
    Floats values(kCount);
    if (step == 0) return values;
    for (std::size_t i = 0; i < kCount; ++i)
      values[i] = static_cast<float>(i % 12 + 1) * static_cast<float>(i / 12 + 1);
    if (step == 2 && rank == size - 1) values[5] = std::numeric_limits<float>::infinity();
    if (step == 3 && rank == 0) values[7] = std::numeric_limits<float>::quiet_NaN();
    return values;
  };
  Floats before;
  steps(size, shape, DType::float32, kCount, 6, 0, fill, [&](int step, const Floats& result, const auto& residual) {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (step == 0) CHECK(result[i] == 0);
      if (step == 2 || step == 3) CHECK(std::isnan(result[i]));
      if (step == 1 || step > 3) {
        const float want = static_cast<float>(size) * static_cast<float>(i % 12 + 1) * static_cast<float>(i / 12 + 1);
        CHECK(std::abs(result[i] - want) < 1e-4f * want + 1e-3f);
      }
    }
    if (step == 2 || step == 3) CHECK(equal_bits(residual[0], before));
    before = residual[0];
  });
}

}  // namespace

int main() {
  every_instruction_set();
  for (int size = 2; size <= 9; ++size) {
    nothing_is_lost(size, size % 2 == 0, static_cast<std::uint64_t>(size) * 100);
    low_rank_is_exact(size, size % 3 == 0 ? DType::bfloat16 : size % 3 == 1 ? DType::float32 : DType::float64, 7);
    zeros_and_infinities(size);
  }
  return 0;
}
