// The values that leave a reduction as it is without them.
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

// One row per DType, in its order.
constexpr std::array<Identities, kDTypes.size()> kIdentities{{
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
      return of.highest;
    case Op::max:
      return of.lowest;
    case Op::product:
      return of.product;
    default:
      return of.sum;
  }
}

}  // namespace

void fill_identity(DType dtype, Op op, void* target, std::size_t count) {
  if (count == 0) return;
  const std::uint64_t value = identity(dtype, op);
  const std::size_t size = size_of(dtype), nbytes = count * size;
  auto* const to = static_cast<std::byte*>(target);
  std::memcpy(to, &value, size);  // little-endian, as all machines that the kernels are written for
  for (std::size_t done = size; done < nbytes; done *= 2) std::memcpy(to + done, to, std::min(done, nbytes - done));
}

}  // namespace ringcomm::kernels
