// Holds the addresses of the blocks of one segment, and memory for its temporary blocks.
#pragma once

#include <vector>

#include "base/cuts.hpp"
#include "executor/run_context.hpp"
#include "executor/staging.hpp"

namespace ringcomm {

inline constexpr std::size_t aligned(std::size_t nbytes) { return round_up(nbytes, kLine); }

class SegmentBlocks {
 public:
  explicit SegmentBlocks(const RunContext& context) : context_(context) {}

  void open(std::size_t segment) {
    const std::vector<int>& temps = context_.schedule->temps;
    const auto blocks = static_cast<std::size_t>(context_.schedule->blocks);
    extents_.resize(blocks + temps.size());
    for (std::size_t b = 0; b < blocks; ++b) extents_[b] = context_.layout.at(b, segment);
    std::size_t room = 0;
    for (const int mirrored : temps) room += aligned(bytes((*this)[mirrored]));
    temporaries_.require(room);
    std::byte* free = temporaries_.data();
    for (std::size_t t = 0; t < temps.size(); ++t) {
      extents_[blocks + t] = {free, (*this)[temps[t]].count, (*this)[temps[t]].first};
      free += aligned(bytes(extents_[blocks + t]));
    }
  }
  const Extent& operator[](std::int32_t block) const { return extents_[static_cast<std::size_t>(block)]; }
  const Extent& of_piece(std::uint32_t piece) const { return (*this)[context_.program.pieces[piece]]; }
  std::size_t bytes(const Extent& extent) const { return extent.count * context_.layout.item_size(); }
  void leak() noexcept { temporaries_.leak(); }

 private:
  const RunContext& context_;
  std::vector<Extent> extents_;  // extents of all blocks and temporary blocks
  Staging temporaries_;
};

}  // namespace ringcomm
