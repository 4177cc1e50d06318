// A slot's staging memory in one rank's arena: what a pass over private arrays goes through.
//
//   header | input 0 | input 1 | input 2 | ...
//
// The places depend only on the header, so they are the same in every call until the memory is replaced by a larger
// one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/types.hpp"
#include "node/node.hpp"

namespace ringcomm {

inline constexpr std::size_t kLine = 64;  // bytes of a cache line: slices are made of whole ones

inline constexpr std::size_t kManySegments = 16;  // of a call: more than caches hold

// A rank's slice of `count` elements, in whole lines counted from the array's start.
inline constexpr Part slice_of(std::size_t count, std::size_t item_size, int ranks, int rank) {
  const std::size_t per_line = kLine / item_size;
  const std::size_t lines = count / per_line + (count % per_line != 0);
  const Part part = split(lines, static_cast<std::size_t>(ranks), static_cast<std::size_t>(rank));
  const std::size_t first = part.first * per_line < count ? part.first * per_line : count;
  const std::size_t last = (part.first + part.count) * per_line;
  return {first, (last < count ? last : count) - first};
}

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
  // Segments of whole lines; powers of two, so that growing calls replace the memory a few times only.
  static std::size_t fitting(std::size_t nbytes) { return std::bit_ceil(nbytes < 4096 ? std::size_t{4096} : nbytes); }

  std::size_t segment() const { return segment_; }  // bytes of one input
  std::size_t inputs() const { return inputs_; }
  std::byte* input(std::uint64_t k) const { return base_ + kLine + k % inputs_ * segment_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t segment_ = 0, inputs_ = 0;
};

}  // namespace ringcomm
