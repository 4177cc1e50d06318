// Tests kernels of elements that hold two numbers, on every instruction set: complex numbers,
// component by component and bit by bit, and pairs of a value and an index.
#include <bit>
#include <cmath>
#include <complex>
#include <limits>

#include "check.hpp"
#include "kernel_data.hpp"
#include "kernels/kernels.hpp"

using namespace ringcomm;
using kernels::Scale;

namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 16, 33, 129, 1027};

template <class F>
F canonical(F value) {
  return value == value ? value : std::numeric_limits<F>::quiet_NaN();
}

// Combines in the order and with the roundings of kernels.hpp; NaNs are canonical.
template <class F>
std::complex<F> combine(Op op, std::complex<F> a, std::complex<F> b) {
  if (op != Op::product) return {a.real() + b.real(), a.imag() + b.imag()};
  volatile F rr = a.real() * b.real(), ii = a.imag() * b.imag(), ri = a.real() * b.imag(), ir = a.imag() * b.real();
  return {rr - ii, ir + ri};
}

template <class F>
F awkward(Random& random) {
  const F values[] = {0,
                      F(-0.0),
                      1,
                      F(-1.5),
                      F(0.1),
                      std::numeric_limits<F>::infinity(),
                      std::numeric_limits<F>::quiet_NaN(),
                      std::numeric_limits<F>::denorm_min()};
  return random() % 4 == 0 ? values[random() % std::size(values)]
                           : static_cast<F>(static_cast<std::int64_t>(random() % 20001) - 10000) / F(97);
}

template <class F>
bool same_bits(F a, F b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class F>
void check_complex(DType dtype, Op op, std::size_t ranks, std::size_t count, Scale post, bool stream, Random& random) {
  std::vector<std::vector<std::complex<F>>> inputs(ranks, std::vector<std::complex<F>>(count));
  for (auto& input : inputs)
    for (auto& value : input) value = {awkward<F>(random), awkward<F>(random)};
  const auto scaled = [post](F value) { return reference::scaled(value, post); };
  for (const auto name : available_sets()) {
    kernels::use_instruction_set(name);
    std::vector<std::complex<F>> one(count), other(count);
    void* const targets[] = {one.data(), other.data()};
    std::vector<const void*> sources;
    for (const auto& input : inputs) sources.push_back(input.data());
    kernels::reduce_many(dtype, op, targets, sources, count, {}, post, stream);
    for (std::size_t i = 0; i < count; ++i) {
      std::complex<F> want = inputs[0][i];
      for (std::size_t r = 1; r < ranks; ++r) want = combine(op, want, inputs[r][i]);
      if (ranks > 1 || !post.identity()) want = {canonical(scaled(want.real())), canonical(scaled(want.imag()))};
      CHECK(same_bits(one[i].real(), want.real()) && same_bits(one[i].imag(), want.imag()));
      CHECK(same_bits(other[i].real(), want.real()) && same_bits(other[i].imag(), want.imag()));
    }
  }
}

void test_complex() {
  Random random(11);
  for (const Op op : {Op::sum, Op::product, Op::average})
    for (std::size_t ranks = 1; ranks <= 19; ranks += ranks < 4 ? 1 : 5)
      for (const std::size_t count : kCounts)
        for (const Scale post : {Scale{}, Scale{0.3, 3}}) {
          check_complex<float>(DType::complex64, op, ranks, count, post, count % 2 == 0, random);
          check_complex<double>(DType::complex128, op, ranks, count, post, count % 2 == 0, random);
        }
}

template <class Value, class Index>
struct Pair {
  Value value;
  Index index;
};

template <class P>
bool is_nan(const P& pair) {
  return pair.value != pair.value;
}

template <class P>
bool before(Op op, const P& a, const P& b) {
  if (is_nan(a) || is_nan(b)) return is_nan(a) && (!is_nan(b) || a.index < b.index);
  if (a.value == b.value) return a.index < b.index;
  return (op == Op::minloc) == (a.value < b.value);
}

template <class Value, class Index>
void check_pairs(DType dtype, Op op, std::size_t ranks, std::size_t count, Random& random) {
  using P = Pair<Value, Index>;
  CHECK(sizeof(P) == size_of(dtype));
  std::vector<std::vector<P>> inputs(ranks, std::vector<P>(count));
  for (auto& input : inputs)
    for (auto& pair : input) {
      pair = {static_cast<Value>(static_cast<int>(random() % 7) - 3), static_cast<Index>(random() % 50)};
      if constexpr (std::is_floating_point_v<Value>)
        if (random() % 9 == 0) pair.value = std::numeric_limits<Value>::quiet_NaN();
    }
  std::vector<const void*> sources;
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<P> result(count), folded(inputs[0]), neutral(count);
  void* const targets[] = {result.data()};
  kernels::reduce_many(dtype, op, targets, sources, count, {}, {});
  for (std::size_t r = 1; r < ranks; ++r)
    kernels::reduce(dtype, op, folded.data(), folded.data(), inputs[r].data(), count);
  kernels::fill_identity(dtype, op, neutral.data(), count);
  kernels::reduce(dtype, op, neutral.data(), neutral.data(), folded.data(), count);
  for (std::size_t i = 0; i < count; ++i) {
    P want = inputs[0][i];
    for (std::size_t r = 1; r < ranks; ++r)
      if (before(op, inputs[r][i], want)) want = inputs[r][i];
    for (const P& got : {result[i], folded[i], neutral[i]}) {
      CHECK(got.index == want.index);
      CHECK(got.value == want.value || (is_nan(got) && is_nan(want)));
    }
  }
}

template <class Index>
void check_all_pairs(DType first, Random& random) {
  const auto next = [at = static_cast<int>(first)](int i) { return static_cast<DType>(at + i); };
  for (const Op op : {Op::minloc, Op::maxloc})
    for (std::size_t ranks = 1; ranks <= 19; ranks += 3)
      for (const std::size_t count : kCounts) {
        check_pairs<std::int16_t, Index>(next(0), op, ranks, count, random);
        check_pairs<std::int32_t, Index>(next(1), op, ranks, count, random);
        check_pairs<std::int64_t, Index>(next(2), op, ranks, count, random);
        check_pairs<float, Index>(next(3), op, ranks, count, random);
        check_pairs<double, Index>(next(4), op, ranks, count, random);
      }
}

template <class F>
void check_neutral(DType dtype) {
  std::vector<std::complex<F>> values{{1, 2}, {F(-0.5), 3}, {0, 0}, {F(-0.0), F(-0.0)}}, neutral(values.size());
  for (const Op op : {Op::sum, Op::product}) {
    kernels::fill_identity(dtype, op, neutral.data(), values.size());
    kernels::reduce(dtype, op, neutral.data(), neutral.data(), values.data(), values.size());
    CHECK(neutral == values);
  }
}

}  // namespace

int main() {
  test_complex();
  Random random(12);
  check_all_pairs<std::int32_t>(DType::int16_int32, random);
  check_all_pairs<std::int64_t>(DType::int16_int64, random);
  check_neutral<float>(DType::complex64);
  check_neutral<double>(DType::complex128);
  return 0;
}
