// Tests Adasum of two vectors, and the identities of all operations, on every instruction set,
// against scalar arithmetic.
#include <bit>
#include <cmath>
#include <functional>

#include "check.hpp"
#include "kernel_data.hpp"

using namespace ringcomm;

namespace {

const std::vector<DType> kFloating{DType::float16, DType::bfloat16, DType::float32, DType::float64};

using Values = std::vector<double>;

Values values_of(DType dtype, const Array& array, std::size_t count) {
  const reference::Format f = reference::format_of(dtype);
  Values values;
  for (std::size_t i = 0; i < count; ++i) {
    const bool nan = f.is_nan(array.get(i));
    values.push_back(nan ? std::numeric_limits<double>::quiet_NaN() : reference::value_of(f, array.get(i)));
  }
  return values;
}

// Sums in 16 lanes, then adds the lanes by halves.
double dot(const Values& a, const Values& b) {
  double lanes[16] = {};
  for (std::size_t i = 0; i < a.size(); ++i) lanes[i % 16] += a[i] * b[i];
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

std::vector<std::uint64_t> expected(DType dtype, const Values& a, const Values& b) {
  const reference::Format f = reference::format_of(dtype);
  const double ab = dot(a, b), aa = dot(a, a), bb = dot(b, b);
  const double by_a = aa == 0 ? 1 : 1 - ab / aa / 2, by_b = bb == 0 ? 1 : 1 - ab / bb / 2;
  std::vector<std::uint64_t> bits;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] * by_a + b[i] * by_b;
    bits.push_back(std::isnan(x) ? f.canonical_nan() : reference::round_to(f, x));
  }
  return bits;
}

using Fill = std::function<double(std::size_t)>;

void check(DType dtype, std::size_t count, std::size_t offset, const Fill& first, const Fill& second) {
  const reference::Format f = reference::format_of(dtype);
  Array a(dtype, count, offset), b(dtype, count, (offset * 3) % 17);
  for (std::size_t i = 0; i < count; ++i) {
    a.set(i, reference::round_to(f, first(i)));
    b.set(i, reference::round_to(f, second(i)));
  }
  const auto want = expected(dtype, values_of(dtype, a, count), values_of(dtype, b, count));
  for (const auto name : available_sets()) {
    kernels::use_instruction_set(name);
    Array apart(dtype, count, (offset * 5) % 23), on_first(dtype, count, offset), on_second(dtype, count, offset);
    kernels::adasum(dtype, apart.data(), a.data(), b.data(), count);
    check_equal("adasum", dtype, apart, want);
    kernels::adasum(dtype, apart.data(), b.data(), a.data(), count);
    check_equal("adasum, operands exchanged", dtype, apart, want);
    on_first.assign(a);
    kernels::adasum(dtype, on_first.data(), on_first.data(), b.data(), count);
    check_equal("adasum on the first", dtype, on_first, want);
    on_second.assign(b);
    kernels::adasum(dtype, on_second.data(), a.data(), on_second.data(), count);
    check_equal("adasum on the second", dtype, on_second, want);
  }
}

void bits() {
  Random random(1);
  const auto normal = [&random](std::size_t) { return std::normal_distribution<double>()(random); };
  for (const DType dtype : kFloating) {
    for (const std::size_t count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1037}) {
      for (std::size_t offset = 0; offset < 20; offset += 7) check(dtype, count, offset, normal, normal);
    }
    check(dtype, 50, 0, normal, [](std::size_t) { return 0.0; });
    check(dtype, 50, 0, [](std::size_t) { return -0.0; }, [](std::size_t) { return 0.0; });
    check(dtype, 50, 0, normal, [](std::size_t i) { return i == 30 ? std::numeric_limits<double>::infinity() : 1.0; });
  }
}

// Checks the formula's properties, which hold for any order of summation.
void properties() {
  for (const DType dtype : kFloating) {
    const reference::Format f = reference::format_of(dtype);
    constexpr std::size_t kCount = 100;
    const auto result = [&](const Fill& first, const Fill& second) {
      Array a(dtype, kCount, 0), b(dtype, kCount, 0), out(dtype, kCount, 0);
      for (std::size_t i = 0; i < kCount; ++i) {
        a.set(i, reference::round_to(f, first(i)));
        b.set(i, reference::round_to(f, second(i)));
      }
      kernels::adasum(dtype, out.data(), a.data(), b.data(), kCount);
      return values_of(dtype, out, kCount);
    };
    const auto even = [](std::size_t i) { return i % 2 ? 0.0 : 3.0; };
    const auto odd = [](std::size_t i) { return i % 2 ? 5.0 : 0.0; };
    const Values orthogonal = result(even, odd), equal = result(even, even),
                 opposite = result(even, [&](std::size_t i) { return -even(i); });
    for (std::size_t i = 0; i < kCount; ++i) {
      CHECK(orthogonal[i] == even(i) + odd(i));  // sum
      CHECK(equal[i] == even(i));                // mean
      CHECK(opposite[i] == 0);
    }
  }
}

void identities() {
  Random random(2);
  for (std::size_t d = 0; d < kNumbers; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (const Op op : {Op::average, Op::sum, Op::min, Op::max, Op::product, Op::adasum}) {
      if (op == Op::adasum && !info(dtype).floating) continue;
      for (const std::size_t count : {0, 1, 5, 64, 1001}) {
        Array values(dtype, count, 3, random), identity(dtype, count, 9), out(dtype, count, 1);
        for (std::size_t i = 0; i < count; ++i) {
          const auto f = info(dtype).floating ? reference::format_of(dtype) : reference::Format{1, 1};
          if (info(dtype).floating && (values.get(i) & (f.sign() - 1)) >= f.infinity() &&
              (op == Op::adasum || f.is_nan(values.get(i))))
            values.set(i, 1);
          if (dtype == DType::boolean) values.set(i, values.get(i) % 2);
        }
        kernels::fill_identity(dtype, op, identity.data(), count);
        CHECK(identity.rim_untouched());
        std::vector<std::uint64_t> want;
        for (std::size_t i = 0; i < count; ++i) want.push_back(values.get(i));
        const auto combine = [&](Array& first, Array& second) {
          op == Op::adasum ? kernels::adasum(dtype, out.data(), first.data(), second.data(), count)
                           : kernels::reduce(dtype, op, out.data(), first.data(), second.data(), count);
        };
        combine(values, identity);
        check_equal(std::string(name_of(op)) + " with its identity", dtype, out, want);
        combine(identity, values);
        check_equal(std::string(name_of(op)) + " of its identity", dtype, out, want);
      }
    }
  }
}

}  // namespace

int main() {
  bits();
  properties();
  identities();
  std::puts("adasum: all passed");
  return 0;
}
