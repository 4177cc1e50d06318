// Divides an array between hosts, for collectives on two levels. If every rank has a separate block
// (allgather, reducescatter), the blocks of a host's ranks form one block, in rank order, even if
// they are not adjacent in the array. For other collectives the array is one block. Cuts, segments
// and slices are as in base/cuts.hpp. Each lane (hosts.hpp) works on one slice of a cut.
#pragma once

#include <cstddef>
#include <vector>

#include "base/call.hpp"
#include "base/cuts.hpp"
#include "hierarchical/hosts.hpp"

namespace ringcomm {

class HostBlocks {
 public:
  // `segment_bytes`: approximate size of all cuts of a segment together. `hosts` must outlive this
  // object.
  HostBlocks(const Hosts& hosts, const Call& call, std::size_t segment_bytes);

  const Cuts& cuts() const { return cuts_; }
  std::size_t length(std::size_t block, std::size_t k) const { return cuts_.cut(block, k).count; }
  // Returns a lane's slice of a block's cut, relative to the beginning of the cut.
  Part slice(std::size_t block, std::size_t k, int lane) const {
    return slice_of(length(block, k), item_, hosts_.lanes(), lane);
  }
  // Calls visit(rank, first, offset, count) for each contiguous piece of `part` of a cut. `rank`:
  // local rank whose block contains the piece; 0 if blocks do not consist of ranks' blocks.
  // `first`, `offset`: the first element in the array, and in the segment.
  template <class Visit>
  void visit(std::size_t block, std::size_t k, Part part, Visit visit) const {
    const std::vector<std::size_t>& starts = starts_[block];
    const std::size_t first = cuts_.slot(block) + part.first;
    stretches_[block].each({k * cuts_.each() + part.first, part.count},
                           [&](std::size_t index, std::size_t inside, std::size_t done, std::size_t count) {
                             visit(static_cast<int>(index), starts[index] + inside, first + done, count);
                           });
  }

 private:
  const Hosts& hosts_;
  const std::size_t item_;
  std::vector<Stretches> stretches_;              // per block: the blocks of its ranks
  std::vector<std::vector<std::size_t>> starts_;  // per block: their starts in the array
  const Cuts cuts_;
};

}  // namespace ringcomm
