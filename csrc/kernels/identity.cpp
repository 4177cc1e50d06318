// Contains the identity elements of reductions: operands that do not change the result.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/kernels.hpp"

namespace ringcomm::kernels {
namespace {

struct Identities {
  std::uint64_t sum, product, lowest, highest;  // as bits
};

constexpr Identities floating(int bits, std::uint64_t one, std::uint64_t infinity) {
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  return {sign, one, infinity | sign, infinity};
}
constexpr Identities with_sign(int bits) {
  const std::uint64_t lowest = std::uint64_t{1} << (bits - 1);
  return {0, 1, lowest, lowest - 1};
}
constexpr Identities without_sign(int bits) { return {0, 1, 0, ~std::uint64_t{0} >> (64 - bits)}; }

// Table with one row per DType of one number, in DType's order.
constexpr std::array<Identities, kNumbers> kIdentities{{
    floating(16, 0x3C00, 0x7C00),
    floating(16, 0x3F80, 0x7F80),
    floating(32, 0x3F800000, 0x7F800000),
    floating(64, 0x3FF0000000000000, 0x7FF0000000000000),
    with_sign(8),
    with_sign(16),
    with_sign(32),
    with_sign(64),
    without_sign(8),
    without_sign(16),
    without_sign(32),
    without_sign(64),
    {0, 1, 0, 1},
}};

std::uint64_t identity(DType dtype, Op op) {
  const Identities& of = kIdentities[static_cast<std::size_t>(dtype)];
  switch (op) {
    case Op::min:
    case Op::minloc:
      return of.highest;
    case Op::max:
    case Op::maxloc:
      return of.lowest;
    case Op::product:
    case Op::land:
      return of.product;
    case Op::band:
      return dtype == DType::boolean ? 1 : ~std::uint64_t{0};
    case Op::bor:
    case Op::bxor:
    case Op::lor:
    case Op::lxor:
      return 0;
    default:
      return of.sum;
  }
}

// Component types of the dtypes that consist of two numbers.
struct Parts {
  DType first, second;
};
constexpr std::array<Parts, kDTypes.size() - kNumbers> kParts{{
    {DType::float32, DType::float32},
    {DType::float64, DType::float64},
    {DType::int16, DType::int32},
    {DType::int32, DType::int32},
    {DType::int64, DType::int32},
    {DType::float32, DType::int32},
    {DType::float64, DType::int32},
    {DType::int16, DType::int64},
    {DType::int32, DType::int64},
    {DType::int64, DType::int64},
    {DType::float32, DType::int64},
    {DType::float64, DType::int64},
}};

// Writes one element. Assumes little-endian byte order, as on all machines that the kernels
// support.
void put_identity(DType dtype, Op op, std::byte* to) {
  std::memset(to, 0, size_of(dtype));
  const std::size_t row = static_cast<std::size_t>(dtype);
  if (row < kNumbers) {
    const std::uint64_t value = identity(dtype, op);
    std::memcpy(to, &value, size_of(dtype));
    return;
  }
  const Parts parts = kParts[row - kNumbers];
  const bool located = op == Op::minloc || op == Op::maxloc;
  const std::uint64_t first = identity(parts.first, op);
  // The second part is an index after all others; for a product, a zero imaginary part.
  const std::uint64_t second = located             ? identity(parts.second, Op::min)
                               : op == Op::product ? 0
                                                   : identity(parts.second, op);
  std::memcpy(to, &first, size_of(parts.first));
  std::memcpy(to + size_of(dtype) / 2, &second, size_of(parts.second));
}

}  // namespace

void fill_identity(DType dtype, Op op, void* target, std::size_t count) {
  if (count == 0) return;
  const std::size_t size = size_of(dtype), nbytes = count * size;
  auto* const to = static_cast<std::byte*>(target);
  put_identity(dtype, op, to);
  for (std::size_t done = size; done < nbytes; done *= 2) std::memcpy(to + done, to, std::min(done, nbytes - done));
}

}  // namespace ringcomm::kernels
