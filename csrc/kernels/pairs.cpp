// Implements minloc and maxloc on pairs of a value and its index, without vector instructions. It
// is compiled once; the tables of all instruction sets contain these functions.
#include <algorithm>
#include <cstring>

#include "kernels/table.hpp"

namespace ringcomm::kernels {
namespace {

template <class Value, class Index>
struct Located {
  static constexpr std::size_t kOffset = std::max(sizeof(Value), sizeof(Index));  // offset of the index
  static constexpr std::size_t kSize = 2 * kOffset;
  Value value;
  Index index;

  static Located read(const void* array, std::size_t i) {
    Located pair;
    const auto* const from = static_cast<const std::byte*>(array) + i * kSize;
    std::memcpy(&pair.value, from, sizeof pair.value);
    std::memcpy(&pair.index, from + kOffset, sizeof pair.index);
    return pair;
  }
  void write(void* array, std::size_t i) const {
    std::byte pair[kSize] = {};
    std::memcpy(pair, &value, sizeof value);
    std::memcpy(pair + kOffset, &index, sizeof index);
    std::memcpy(static_cast<std::byte*>(array) + i * kSize, pair, kSize);
  }
  // NaNs are equal to each other, and precede all numbers.
  template <bool least>
  bool comes_before(const Located& other) const {
    const bool nan = value != value, other_nan = other.value != other.value;
    if (nan != other_nan) return nan;
    if (nan || value == other.value) return index < other.index;
    return least ? value < other.value : value > other.value;
  }
};

}  // namespace

template <class Value, class Index, bool least>
void run_pairs(const Pass& pass) {
  using Pair = Located<Value, Index>;
  for (std::size_t i = 0; i < pass.count; ++i) {
    std::size_t s = pass.carry_in ? 0 : 1;
    Pair best = pass.carry_in ? Pair::read(pass.carry_in, i) : Pair::read(pass.sources[0], pass.first + i);
    for (; s < pass.source_count; ++s) {
      const Pair next = Pair::read(pass.sources[s], pass.first + i);
      if (next.template comes_before<least>(best)) best = next;
    }
    if (pass.carry_out) {
      best.write(pass.carry_out, i);
      continue;
    }
    for (std::size_t t = 0; t < pass.target_count; ++t) best.write(pass.targets[t], pass.first + i);
  }
}

#define RINGCOMM_ONE(Value, Index)                          \
  template void run_pairs<Value, Index, true>(const Pass&); \
  template void run_pairs<Value, Index, false>(const Pass&);
RINGCOMM_PAIRS(RINGCOMM_ONE)
#undef RINGCOMM_ONE

}  // namespace ringcomm::kernels
