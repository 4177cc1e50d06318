// Defines the staging memory of a communicator's slot in one rank's arena. A pass copies arrays in
// private memory through this memory.
//
//   header | input 0 | input 1 | input 2 | ...
//
// The addresses of inputs depend only on the header, so they are equal in every call until a larger
// area replaces the memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/cuts.hpp"

namespace ringcomm {

inline constexpr std::size_t kManySegments = 16;  // a call with this number of segments exceeds the caches

class StagingArea {
 public:
  StagingArea() = default;
  explicit StagingArea(std::byte* base)
      : base_(base), segment_(reinterpret_cast<std::uint64_t*>(base)[0]),
        inputs_(reinterpret_cast<std::uint64_t*>(base)[1]) {}
  static std::size_t nbytes(std::size_t segment, std::size_t inputs) { return kLine + inputs * segment; }
  static StagingArea make(std::byte* base, std::size_t segment, std::size_t inputs) {
    auto* const header = reinterpret_cast<std::uint64_t*>(base);
    header[0] = segment;
    header[1] = inputs;
    return StagingArea(base);
  }
  // Returns the size of a segment that holds `nbytes`: a power of two, at least 4096 bytes. So the
  // memory is replaced only a few times while the sizes of calls increase.
  static std::size_t fitting(std::size_t nbytes) { return std::bit_ceil(nbytes < 4096 ? std::size_t{4096} : nbytes); }

  std::size_t segment() const { return segment_; }  // bytes of one input
  std::size_t inputs() const { return inputs_; }
  std::byte* input(std::uint64_t k) const { return base_ + kLine + k % inputs_ * segment_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t segment_ = 0, inputs_ = 0;
};

}  // namespace ringcomm
