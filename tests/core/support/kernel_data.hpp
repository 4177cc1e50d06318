// Arrays for kernel tests: any dtype, any misalignment, frequent edge values, and a margin that
// must not change.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "check.hpp"
#include "kernel_reference.hpp"
#include "kernels/kernels.hpp"
#include "random.hpp"

inline std::vector<std::string_view> available_sets() {
  std::vector<std::string_view> names;
  for (const std::string_view name : {"generic", "avx2", "avx512", "neon"})
    if (ringcomm::kernels::use_instruction_set(name)) names.push_back(name);
  CHECK(!names.empty());
  return names;
}

inline std::uint64_t random_element(ringcomm::DType dtype, Random& random) {
  const std::uint64_t bits = random();
  const std::uint64_t mask = reference::mask_of(dtype);
  if (bits % 3 != 0) return random() & mask;
  if (!ringcomm::info(dtype).floating) {  // around 0, the largest and the smallest
    const std::uint64_t edges[] = {0, 1, 2, mask, mask >> 1, (mask >> 1) + 1, mask - 1};
    return edges[(bits >> 8) % 7] & mask;
  }
  const reference::Format f = reference::format_of(dtype);
  const std::uint64_t one = static_cast<std::uint64_t>(f.bias()) << f.mantissa;
  const std::uint64_t values[] = {0,
                                  1,
                                  f.quiet(),
                                  (f.quiet() << 1) - 1,
                                  f.quiet() << 1,  // zero, subnormals, the smallest normal number
                                  one,
                                  one + 1,
                                  f.infinity() - 1,
                                  f.infinity(),  // 1, after 1, the largest, infinity
                                  f.infinity() | 1,
                                  f.infinity() | (f.quiet() >> 1),
                                  f.canonical_nan(),  // signalling and quiet NaNs
                                  f.canonical_nan() | (random() & (f.quiet() - 1))};
  return values[(bits >> 8) % std::size(values)] | ((bits & 4) != 0 ? f.sign() : 0);
}

class Array {
 public:
  Array(ringcomm::DType dtype, std::size_t count, std::size_t offset)
      : dtype_(dtype), count_(count), memory_(kRim + offset + count * ringcomm::size_of(dtype) + kRim, kUntouched) {
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(memory_.data()) % 64;
    start_ = (64 - misaligned) % 64 + offset;  // `offset` past a cache line's start
  }
  Array(ringcomm::DType dtype, std::size_t count, std::size_t offset, Random& random) : Array(dtype, count, offset) {
    for (std::size_t i = 0; i < count; ++i) set(i, random_element(dtype, random));
  }
  Array(const Array&) = delete;
  Array(Array&&) = default;  // moving a vector keeps its memory's address

  std::uint8_t* data() { return memory_.data() + start_; }
  std::uint64_t get(std::size_t i) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, memory_.data() + start_ + i * ringcomm::size_of(dtype_), ringcomm::size_of(dtype_));
    return bits;
  }
  void set(std::size_t i, std::uint64_t bits) {
    std::memcpy(data() + i * ringcomm::size_of(dtype_), &bits, ringcomm::size_of(dtype_));
  }
  void assign(const Array& other) {
    std::memcpy(data(), other.memory_.data() + other.start_, count_ * ringcomm::size_of(dtype_));
  }
  bool rim_untouched() const {
    const std::size_t end = start_ + count_ * ringcomm::size_of(dtype_);
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < start_ || i >= end) && memory_[i] != kUntouched) return false;
    return true;
  }

 private:
  static constexpr std::size_t kRim = 64;
  static constexpr std::uint8_t kUntouched = 0xA5;
  ringcomm::DType dtype_;
  std::size_t count_, start_ = 0;
  std::vector<std::uint8_t> memory_;
};

// Prints the element that differs before the check fails.
inline void check_equal(std::string_view what, ringcomm::DType dtype, const Array& got,
                        const std::vector<std::uint64_t>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got.get(i) == want[i]) continue;
    const std::string where = std::string(what) + " " + std::string(ringcomm::info(dtype).name) + " on " +
                              std::string(ringcomm::kernels::instruction_set());
    std::fprintf(stderr, "%s: element %zu of %zu is %llx, not %llx\n", where.c_str(), i, want.size(),
                 static_cast<unsigned long long>(got.get(i)), static_cast<unsigned long long>(want[i]));
    std::abort();
  }
  CHECK(got.rim_untouched());
}
