// A slot's staging memory in one rank's arena: what a pass over private arrays goes through.
//
//   header | input 0 | input 1 | input 2 | ...
//
// Where inputs lie depends on the header only, so it is the same in every call until the memory is replaced by a larger
// one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/cuts.hpp"

namespace ringcomm {

inline constexpr std::size_t kManySegments = 16;  // of a call: more than caches hold

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
