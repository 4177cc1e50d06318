// Tests lossy encoders: equal bits from every instruction set, and the residual holds all losses.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lossy_encoders.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 7, 31, 32, 33, 255, 256, 257, 511, 512, 1023, 1024, 1025, 3001, 20011};
void every_instruction_set() {
  Random random(1);
  const std::string usual(kernels::instruction_set());
  for (const Wire wire : lossy()) {
    for (const std::size_t count : kCounts) {
      const std::vector<float> values = normal(count, random), residual = normal(count, random);
      for (const std::vector<float>* held : {static_cast<const std::vector<float>*>(nullptr), &residual}) {
        CHECK(kernels::use_instruction_set("generic"));
        const Encoded want = encode(wire, values, held);
        for (const char* set : {"avx2", "avx512", "neon"})
          if (kernels::use_instruction_set(set)) CHECK(encode(wire, values, held) == want);
      }
    }
  }
  CHECK(kernels::use_instruction_set(usual));
}

// Checks that the block holds the values that all ranks decode, and that the residual is the exact
// difference, except for the sum's rounding.
void what_is_left_out_is_owed() {
  Random random(2);
  for (const Wire wire : lossy()) {
    for (const std::size_t count : kCounts) {
      const std::vector<float> values = normal(count, random), residual = normal(count, random);
      const Encoded one = encode(wire, values, &residual), alone = encode(wire, values, nullptr);
      if (one.wire.empty()) continue;
      CHECK(one.left == one.decoded && alone.left == alone.decoded);
      for (std::size_t i = 0; i < count; ++i) {
        CHECK(one.next[i] == values[i] + residual[i] - one.left[i]);
        CHECK(one.added[i] == 1 + one.left[i]);
      }
    }
  }
}

// Checks that over many calls all inputs arrive, except for the final residual.
void nothing_is_lost() {
  Random random(3);
  constexpr std::size_t kCount = 3001, kCalls = 50, kOne[] = {kCount};
  for (const Wire wire : lossy()) {
    Feedback feedback(kOne);
    const auto codec = make_codec(wire, DType::float32, &feedback);
    if (!codec) continue;
    std::vector<double> given(kCount), arrived(kCount);
    std::vector<std::byte> bytes(codec->capacity(kCount));
    for (std::size_t call = 0; call < kCalls; ++call) {
      std::vector<float> block = normal(kCount, random);
      const bool drops = call % 7 == 3;
      feedback.begin(0, call % 5 == 0 ? 2 : 1);
      for (std::size_t i = 0; i < kCount; ++i) given[i] += drops ? 0 : static_cast<double>(block[i]);
      codec->encode({0, 0, static_cast<std::uint32_t>(call), 0}, block.data(), kCount, bytes.data());
      if (drops) feedback.undo(0);
      for (std::size_t i = 0; i < kCount; ++i) arrived[i] += drops ? 0 : static_cast<double>(block[i]);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      const double lost = given[i] - arrived[i] - static_cast<double>(feedback.residual(0)[i]);
      CHECK(std::abs(lost) <= 1e-5 * (1 + std::abs(given[i])) + 5e-5);
    }
  }
}

// Checks groups with infinities: they are NaN on all ranks, as without encoding, and do not
// persist.
void infinities_are_seen_and_not_kept() {
  Random random(4);
  const float bad[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                       std::numeric_limits<float>::quiet_NaN()};
  for (const Wire wire : lossy()) {
    for (const float value : bad) {
      std::vector<float> values = normal(3001, random);
      const std::vector<float> residual = normal(3001, random);
      values[1234] = value;
      const Encoded one = encode(wire, values, &residual), alone = encode(wire, values, nullptr);
      if (one.wire.empty()) continue;
      for (const Encoded* each : {&one, &alone}) {
        CHECK(std::any_of(each->left.begin(), each->left.end(), [](float x) { return !std::isfinite(x); }));
        CHECK(std::memcmp(each->left.data(), each->decoded.data(), 3001 * sizeof(float)) == 0);
      }
      CHECK(std::all_of(one.next.begin(), one.next.end(), [](float x) { return std::isfinite(x); }));
    }
  }
}

void extremes() {
  constexpr float kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::denorm_min();
  for (const Wire wire : lossy()) {
    for (const float size : {0.0f, kLeast, 1e-39f, 1e-31f, kMost}) {
      for (const std::size_t count : {1ul, 100ul, 1024ul}) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = i % 3 == 0 ? size : i % 3 == 1 ? -size : 0;
        const std::vector<float> residual(count);
        const Encoded one = encode(wire, values, &residual);
        if (one.wire.empty()) continue;
        for (std::size_t i = 0; i < count; ++i) {
          // A sum of magnitudes may be infinite, and then it has no mean.
          CHECK(std::isfinite(one.next[i]));
          if (size == 0) CHECK(one.left[i] == 0);
        }
      }
    }
  }
}

// Checks that with random rounding the mean of the results is the input.
void chance_is_fair() {
  for (const Wire wire : {with("int8", 1), with("int4", 1), with("ternary", 1)}) {
    constexpr std::size_t kCount = 512;
    constexpr std::uint32_t kCalls = 2000;
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = std::sin(static_cast<float>(i)) * (i % 7 == 0 ? 3.f : 1.f);
    const auto codec = make_codec(wire, DType::float32);
    std::vector<std::byte> bytes(codec->capacity(kCount));
    std::vector<double> sums(kCount), squares(kCount);
    for (std::uint32_t call = 0; call < kCalls; ++call) {
      std::vector<float> block = values;
      codec->encode({0, 0, call, 0}, block.data(), kCount, bytes.data());
      for (std::size_t i = 0; i < kCount; ++i) {
        sums[i] += static_cast<double>(block[i]);
        squares[i] += static_cast<double>(block[i]) * static_cast<double>(block[i]);
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      const double mean = sums[i] / kCalls, variance = std::max(0.0, squares[i] / kCalls - mean * mean);
      constexpr double kRare = .004;  // allowance for values so rare that none may have arrived
      CHECK(std::abs(mean - static_cast<double>(values[i])) <= 5 * std::sqrt(variance / kCalls) + kRare);
    }
  }
}

void what_each_keeps() {
  Random random(6);
  const std::vector<float> values = normal(20011, random);
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const auto error = [&](Wire wire) {
    const Encoded one = encode(wire, values, nullptr);
    double lost = 0, all = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      lost += std::pow(static_cast<double>(values[i] - one.left[i]), 2);
      all += std::pow(static_cast<double>(values[i]), 2);
    }
    return std::sqrt(lost / all);
  };
  CHECK(error(find_wire("int8")) < .04 && error(find_wire("int4")) < .7);
  CHECK(error(find_wire("onebit")) < 1 && error(find_wire("ternary")) < 1);
  for (const float share : {.01f, .1f}) {  // keeps the largest values, about the requested number
    const Encoded one = encode(with("topk", 0, share), values, nullptr);
    const auto kept =
        static_cast<double>(std::count_if(one.left.begin(), one.left.end(), [](float x) { return x != 0; }));
    CHECK(kept >= .7 * static_cast<double>(share) * 20011 && kept <= 1.25 * static_cast<double>(share) * 20011 + 9);
    float least = largest, most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (one.left[i] != 0) CHECK(one.left[i] == values[i]);
      if (one.left[i] != 0) least = std::min(least, std::abs(values[i]));
      if (one.left[i] == 0) most = std::max(most, std::abs(values[i]));
    }
    CHECK(least >= most);
    CHECK(one.wire.size() <= static_cast<std::size_t>(kept * 5.4) + 32);
  }
  const Encoded signs = encode(with("threshold", 0, 2), values, nullptr);
  for (std::size_t i = 0; i < values.size(); ++i)
    CHECK(signs.left[i] == (std::abs(values[i]) < 2 ? 0.f : std::copysign(2.f, values[i])));
}

// Checks that 16-bit floats and float64 are encoded by way of float32.
void other_dtypes() {
  Random random(8);
  for (const Wire wire : lossy()) {
    for (const DType data : {DType::float16, DType::bfloat16, DType::float64}) {
      const std::vector<float> values = normal(3001, random);
      std::vector<std::byte> block(3001 * size_of(data)), decoded(block.size());
      kernels::cast(data, block.data(), DType::float32, values.data(), 3001);
      const auto codec = make_codec(wire, data);
      if (!codec) continue;
      std::vector<std::byte> bytes(codec->capacity(3001));
      const std::size_t nbytes = codec->encode(kKey, block.data(), 3001, bytes.data());
      codec->decode(bytes.data(), nbytes, decoded.data(), 3001);
      CHECK(block == decoded);
    }
  }
}

// Checks large tensors, whose next residuals are stored past the cache if their alignment allows
// it.
void large_tensors() {
  Random random(9);
  constexpr std::size_t kLarge = std::size_t{1} << 20, kCount = 3001;
  const std::string usual(kernels::instruction_set());
  for (const char* set : {"generic", "avx2", "avx512", "neon"}) {
    if (!kernels::use_instruction_set(set)) continue;
    for (const Wire wire : lossy()) {
      for (const std::size_t first : {kLarge / 2, kLarge / 2 + 5}) {
        const std::vector<float> values = normal(kCount, random), residual = normal(kCount, random);
        const auto encoded = [&](std::size_t elements) {
          const std::size_t counts[] = {elements};
          Feedback feedback(counts);
          std::copy(residual.begin(), residual.end(), feedback.residual(0).subspan(first).begin());
          feedback.begin(0, 1);
          Encoded out;
          const auto codec = make_codec(wire, DType::float32, &feedback);
          if (!codec) return out;
          out.left = values;
          out.wire.resize(codec->capacity(kCount));
          out.wire.resize(codec->encode({0, first, 5, 1}, out.left.data(), kCount, out.wire.data()));
          out.next.assign(feedback.after(0) + first, feedback.after(0) + first + kCount);
          return out;
        };
        CHECK(encoded(kLarge) == encoded(kLarge - 1));
      }
    }
  }
  CHECK(kernels::use_instruction_set(usual));
}

// Checks that the bits per index are at most 3 % above the entropy of the gaps, if the share is
// known.
void places_cost_what_they_must() {
  constexpr std::size_t kElements = 1 << 20;
  Random random(11);
  for (const float share : {.5f, .2f, .1f, .03f, .01f, .003f, .001f}) {
    const double p = share, worth = -std::log2(p) - (1 - p) / p * std::log2(1 - p);
    std::vector<float> values(kElements);
    for (float& value : values) value = static_cast<float>(below(random, 1 << 20)) < share * (1 << 20) ? 1.0f : 0.0f;
    const auto kept = static_cast<double>(std::ranges::count(values, 1.0f));
    for (const auto& [wire, entry] : {std::pair{with("topk", 0, share), 32.0}, std::pair{with("topk", 4, share), 16.0},
                                      std::pair{with("threshold", 0, .5f), 1.0}}) {
      const double bits = static_cast<double>(encode(wire, values, nullptr).wire.size() - 16) * 8 / kept - entry;
      CHECK(bits < worth * 1.03 || (entry == 1.0 && share < .01f));
    }
  }
}

void feedback_of_parts() {
  const std::size_t counts[] = {4, 2};
  Feedback feedback(counts);
  const auto step = [&](std::uint64_t way, float value, std::size_t written) {
    feedback.begin(0, way);
    for (std::size_t i = 0; i < written; ++i) feedback.after(0)[i] = feedback.before(0)[i] + value;
  };
  step(1, 1, 4);
  step(2, 1, 2);  // the other residuals remain
  CHECK(feedback.before(0)[3] == 1);
  step(2, 1, 2);
  feedback.undo(0, 1, 1);
  std::vector<float> residual(feedback.residual(0).begin(), feedback.residual(0).end());
  CHECK((residual == std::vector<float>{3, 2, 1, 1}));
  step(1, 5, 4);
  feedback.undo_all();
  step(3, 1, 1);  // nothing of the undone call remains
  feedback.scale(2);
  residual.assign(feedback.residual(0).begin(), feedback.residual(0).end());
  CHECK((residual == std::vector<float>{8, 4, 2, 2}));
  CHECK(feedback.count(1) == 2);
}

}  // namespace

int main() {
  every_instruction_set();
  what_is_left_out_is_owed();
  nothing_is_lost();
  infinities_are_seen_and_not_kept();
  extremes();
  chance_is_fair();
  what_each_keeps();
  other_dtypes();
  large_tensors();
  places_cost_what_they_must();
  feedback_of_parts();
}
