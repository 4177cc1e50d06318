// Tests every kernel, on every instruction set of this machine, bit by bit against the scalar
// reference.
#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "check.hpp"
#include "kernel_data.hpp"
#include "kernel_reference.hpp"
#include "kernels/kernels.hpp"

using namespace ringcomm;
using kernels::Scale;

namespace {

const std::vector<DType> kFloating{DType::float16, DType::bfloat16, DType::float32, DType::float64};
constexpr std::size_t kCounts[] = {0, 1, 2, 3, 5, 8, 13, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 191, 257, 1001};

DType dtype_at(std::size_t i) { return static_cast<DType>(i); }

void test_choice() {
  const std::string_view first = kernels::instruction_set();
  on_ranks(8, [&](int) { CHECK(kernels::instruction_set() == first); });
  CHECK(!kernels::use_instruction_set("none such") && kernels::instruction_set() == first);
  const auto sets = available_sets();
  CHECK(std::find(sets.begin(), sets.end(), "generic") != sets.end());
  CHECK(std::find(sets.begin(), sets.end(), first) != sets.end());
  for (const auto name : sets) CHECK(kernels::use_instruction_set(name) && kernels::instruction_set() == name);
}

void check_cast(DType to, DType from, const std::vector<std::uint64_t>& values, std::size_t offset) {
  Array source(from, values.size(), offset);
  std::vector<std::uint64_t> want(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    source.set(i, values[i]);
    want[i] = reference::cast(to, from, values[i]);
  }
  for (const auto name : available_sets()) {
    kernels::use_instruction_set(name);
    Array target(to, values.size(), offset + 1);
    kernels::cast(to, target.data(), from, source.data(), values.size());
    check_equal(info(from).name, to, target, want);
  }
}

// Casts all 16-bit floats, and around each the values where rounding to it begins and ends.
void test_casts() {
  Random random(1);
  for (const DType half : {DType::float16, DType::bfloat16}) {
    std::vector<std::uint64_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    for (const DType to : kFloating) check_cast(to, half, all, 3);
    for (const DType from : {DType::float32, DType::float64}) {
      const int lost = reference::format_of(from).mantissa - reference::format_of(half).mantissa;
      const std::uint64_t tie = std::uint64_t{1} << (lost - 1);
      std::vector<std::uint64_t> edges;
      for (const std::uint64_t bits : all) {
        const std::uint64_t exact = reference::cast(from, half, bits);
        for (const std::uint64_t near : {exact, exact + 1, exact - 1, exact + tie, exact + tie + 1, exact + tie - 1})
          edges.push_back(near & reference::mask_of(from));
      }
      check_cast(half, from, edges, 1);
    }
  }
  for (const DType to : kFloating)
    for (const DType from : kFloating)
      for (const std::size_t count : kCounts) {
        std::vector<std::uint64_t> values(count * 20);
        for (auto& value : values) value = random_element(from, random);
        check_cast(to, from, values, count % 7);
      }
  // These float64 values are next to a tie between two 16-bit floats: rounding by way of float32
  // would lose the side.
  std::vector<std::uint64_t> beside;
  for (int i = 0; i < 4096; ++i)
    for (const double tiny : {-0x1p-50, 0x1p-50}) {
      const double tie = 1.0 + (i + 0.5) * 0x1p-10;
      beside.push_back(std::bit_cast<std::uint64_t>(tie * (1.0 + tiny)));
      beside.push_back(std::bit_cast<std::uint64_t>((1.0 + (i % 128 + 0.5) * 0x1p-7) * (1.0 + tiny)));
      beside.push_back(std::bit_cast<std::uint64_t>((i % 64 + 0.5) * 0x1p-24 * (1.0 + tiny)));
    }
  check_cast(DType::float16, DType::float64, beside, 0);
  check_cast(DType::bfloat16, DType::float64, beside, 0);
}

void check_reduce(DType dtype, Op op, std::size_t count, std::size_t offset, Random& random) {
  Array first(dtype, count, offset, random), second(dtype, count, (offset * 3) % 17, random);
  std::vector<std::uint64_t> want(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t both[] = {first.get(i), second.get(i)};
    want[i] = reference::reduce(dtype, op, both);
  }
  for (const auto name : available_sets()) {
    kernels::use_instruction_set(name);
    Array apart(dtype, count, (offset * 5) % 23), on_first(dtype, count, offset), on_second(dtype, count, offset);
    kernels::reduce(dtype, op, apart.data(), first.data(), second.data(), count);
    check_equal(name_of(op), dtype, apart, want);
    on_first.assign(first);
    kernels::reduce(dtype, op, on_first.data(), on_first.data(), second.data(), count);
    check_equal(name_of(op), dtype, on_first, want);
    on_second.assign(second);
    kernels::reduce(dtype, op, on_second.data(), first.data(), on_second.data(), count);
    check_equal(name_of(op), dtype, on_second, want);
  }
}

// Returns the ops of a number; ops that take no factors are last.
std::vector<Op> ops_of(DType dtype) {
  std::vector<Op> ops;
  for (std::size_t o = 0; o < kOpNames.size(); ++o)
    if (kernels::reduces(dtype, static_cast<Op>(o))) ops.push_back(static_cast<Op>(o));
  return ops;
}

void test_which_ops() {
  for (std::size_t d = 0; d < kDTypes.size(); ++d) {
    const DType dtype = dtype_at(d);
    const bool integer = dtype >= DType::int8 && dtype <= DType::boolean;
    const bool is_complex = dtype == DType::complex64 || dtype == DType::complex128;
    CHECK(ops_of(dtype).size() == (d >= kNumbers ? (is_complex ? 3u : 2u) : integer ? 11u : 5u));
    for (const Op op : kElementOps) CHECK(kernels::reduces(dtype, op) || d >= kNumbers);
    CHECK(!kernels::reduces(dtype, Op::adasum));
  }
}

void test_reduce() {
  Random random(2);
  for (std::size_t d = 0; d < kNumbers; ++d)
    for (const Op op : ops_of(dtype_at(d))) {
      for (const std::size_t count : kCounts)
        check_reduce(dtype_at(d), op, count, static_cast<std::size_t>(random() % 64), random);
      for (std::size_t offset = 0; offset < 64; offset += 7) check_reduce(dtype_at(d), op, 77, offset, random);
      check_reduce(dtype_at(d), op, size_of(dtype_at(d)) == 2 ? 65536 : 4099, 1, random);
    }
}

const std::vector<Scale> kScales{{}, {1.0, 3}, {0.3, 1}, {2.5, 7}};

// Divides every element of the small integers by every divisor; scales all other dtypes by awkward
// factors.
void test_scale() {
  Random random(3);
  const auto check = [](DType dtype, Array& source, std::size_t count, Scale by) {
    std::vector<std::uint64_t> want(count);
    for (std::size_t i = 0; i < count; ++i) want[i] = reference::reduce(dtype, Op::sum, std::vector{source.get(i)}, by);
    for (const auto name : available_sets()) {
      kernels::use_instruction_set(name);
      Array target(dtype, count, 5);
      kernels::scale(dtype, target.data(), source.data(), count, by);
      check_equal("scale", dtype, target, want);
      target.assign(source);
      kernels::scale(dtype, target.data(), target.data(), count, by);
      check_equal("scale in place", dtype, target, want);
    }
  };
  for (const DType dtype : {DType::int8, DType::uint8, DType::int16, DType::uint16}) {
    const std::size_t count = size_of(dtype) == 1 ? 256 : 65536;
    Array all(dtype, count, 1);
    for (std::size_t i = 0; i < count; ++i) all.set(i, i);
    const std::int64_t most = count == 256 ? 300 : 24;
    for (std::int64_t divisor = 1; divisor <= most; ++divisor) check(dtype, all, count, {1.0, divisor});
    for (const std::int64_t divisor : {32767, 32768, 65535, 65536, 16777217}) check(dtype, all, count, {1.0, divisor});
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t d = 0; d < kNumbers; ++d) {
    Array source(dtype_at(d), 1003, 3, random);
    for (const double factor : {1.0, 0.0, -1.0, 0.5, 1.0 / 3, 1e10, -1e300, infinity, nan})
      for (const std::int64_t divisor : std::initializer_list<std::int64_t>{1, 2, 49, 1LL << 31, 1LL << 62})
        check(dtype_at(d), source, 1003, {factor, divisor});
  }
}

struct Shape {
  std::size_t sources, targets, count;
  bool in_place, aligned, stream;
};

void check_reduce_many(DType dtype, Op op, Shape shape, Scale pre, Scale post, Random& random) {
  std::vector<Array> originals;
  for (std::size_t s = 0; s < shape.sources; ++s)
    originals.emplace_back(dtype, shape.count, shape.aligned ? 0 : static_cast<std::size_t>(random() % 64), random);
  std::vector<std::uint64_t> want(shape.count), column(shape.sources);
  for (std::size_t i = 0; i < shape.count; ++i) {
    for (std::size_t s = 0; s < shape.sources; ++s) column[s] = originals[s].get(i);
    want[i] = reference::reduce(dtype, op, column, pre, post);
  }
  for (const auto name : available_sets()) {
    kernels::use_instruction_set(name);
    std::vector<Array> arrays;
    std::vector<const void*> sources;
    std::vector<void*> targets;
    const std::size_t shared = shape.in_place ? std::min(shape.sources, shape.targets) : 0;
    arrays.reserve(shape.sources + shape.targets);
    for (std::size_t s = 0; s < shape.sources; ++s) {
      arrays.emplace_back(dtype, shape.count, shape.aligned ? 0 : s * 3 % 64);
      arrays.back().assign(originals[s]);
      sources.push_back(arrays.back().data());
      if (s < shared) targets.push_back(arrays.back().data());
    }
    while (targets.size() < shape.targets) {
      arrays.emplace_back(dtype, shape.count, shape.aligned ? 16 : targets.size() * 5 % 64);
      targets.push_back(arrays.back().data());
    }
    if (shape.in_place) std::reverse(targets.begin(), targets.end());
    kernels::reduce_many(dtype, op, targets, sources, shape.count, pre, post, shape.stream);
    for (Array& array : arrays)
      if (std::find(targets.begin(), targets.end(), array.data()) != targets.end())
        check_equal("reduce_many", dtype, array, want);
    for (std::size_t s = shared; s < shape.sources; ++s)
      for (std::size_t i = 0; i < shape.count; ++i) CHECK(arrays[s].get(i) == originals[s].get(i));
  }
}

void test_reduce_many() {
  Random random(4);
  const auto coin = [&random] { return random() % 2 == 0; };
  constexpr std::size_t kSizes[] = {0, 1, 2, 17, 64, 130, 1037};
  for (std::size_t d = 0; d < kNumbers; ++d)
    for (const Op op : ops_of(dtype_at(d)))
      for (std::size_t sources = 1; sources <= 20; ++sources)
        for (const std::size_t targets : {sources, std::size_t{1}, 1 + static_cast<std::size_t>(random() % 20)})
          check_reduce_many(dtype_at(d), op, {sources, targets, kSizes[random() % 7], coin(), coin(), coin()},
                            kScales[is_scaled(op) ? random() % 4 : 0], kScales[is_scaled(op) ? random() % 4 : 0],
                            random);
  // Arrays are longer than a block of the carry, in every dtype, for the shapes that use different
  // code paths.
  for (std::size_t d = 0; d < kNumbers; ++d)
    for (const std::size_t ranks : std::initializer_list<std::size_t>{1, 2, 8, 9, 17})
      for (const bool in_place : {false, true})
        for (const bool stream : {false, true})
          check_reduce_many(dtype_at(d), Op::sum, {ranks, ranks, 9001, in_place, true, stream}, {},
                            kScales[random() % 2], random);
}

void test_copy() {
  Random random(5);
  for (const auto name : available_sets()) {
    kernels::use_instruction_set(name);
    for (const bool stream : {false, true})
      for (std::size_t count = 0; count < 6000; count += count < 70 ? 1 : count < 400 ? 37 : 503) {
        Array source(DType::uint8, count, random() % 64, random), target(DType::uint8, count, random() % 64);
        kernels::copy(target.data(), source.data(), count, stream);
        for (std::size_t i = 0; i < count; ++i) CHECK(target.get(i) == source.get(i));
        CHECK(target.rim_untouched());
      }
  }
}

void test_move() {
  for (const std::size_t nbytes : {std::size_t{0}, std::size_t{100}, std::size_t{3000}})
    for (const std::size_t to :
         {std::size_t{0}, std::size_t{8}, std::size_t{2000}, std::size_t{2008}, std::size_t{5003}}) {
      std::vector<std::byte> bytes(9000), wanted;
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
      wanted = bytes;
      std::memmove(wanted.data() + to, bytes.data() + 2000, nbytes);
      kernels::move(bytes.data() + to, bytes.data() + 2000, nbytes);
      CHECK(bytes == wanted);
    }
}

}  // namespace

int main() {
  test_choice();
  test_which_ops();
  test_casts();
  test_reduce();
  test_scale();
  test_reduce_many();
  test_copy();
  test_move();
  return 0;
}
