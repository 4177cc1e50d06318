// An array as hosts see it. Where every rank has a block of its own (allgather, reducescatter), a host's blocks count
// as one, in the order of its ranks, wherever they lie in the array; the array of other collectives is one block. Cuts,
// segments and slices are as in base/cuts.hpp, the slices a lane's each.
#pragma once

#include <cstddef>
#include <vector>

#include "base/call.hpp"
#include "base/cuts.hpp"
#include "hierarchical/hosts.hpp"

namespace ringcomm {

class HostBlocks {
 public:
  // `segment_bytes`: of all cuts of a segment together, about. `hosts` outlives it.
  HostBlocks(const Hosts& hosts, const Call& call, std::size_t segment_bytes);

  const Cuts& cuts() const { return cuts_; }
  std::size_t length(std::size_t block, std::size_t k) const { return cuts_.cut(block, k).count; }
  // A lane's slice of a block's cut, counted from the beginning of the cut.
  Part slice(std::size_t block, std::size_t k, int lane) const {
    return slice_of(length(block, k), item_, hosts_.lanes(), lane);
  }
  // Of a part of a block's cut, what lies in one piece of the array: visit(whose it is, as a local rank there; first
  // element in the array, in the segment; elements). A block that is not made of ranks' is nobody's in particular: 0.
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
  std::vector<Stretches> stretches_;              // by block: its ranks' blocks
  std::vector<std::vector<std::size_t>> starts_;  // and where each begins in the array
  const Cuts cuts_;
};

}  // namespace ringcomm
