// Implements the collectives on two levels that only move data: broadcast and allgather.
#include "hierarchical/two_level_pass.hpp"

namespace ringcomm {
namespace {

// A rank that contributes data writes it to its staging memory. Ranks in lanes copy the slices of
// their lane from there, and receive the slices of other hosts. Each rank then reads the slices of
// all lanes.
class TwoLevelMove final : public TwoLevelPass {
 public:
  TwoLevelMove(Epochs& epochs, const Call& call, LaneRun lane, HostBlocks blocks, bool gives)
      : TwoLevelPass(epochs, call, std::move(lane), std::move(blocks), gives) {}

 private:
  bool mine(std::size_t block, int rank) const { return is_home(block) && owner(rank) == me(); }
  const std::byte* source(std::size_t first) const { return at(call_.input, (first - own_start_) * item_); }
  // Returns the start of the caller's own data in the complete array.
  std::size_t own_start() const {
    const int rank = hosts().here()[static_cast<std::size_t>(me())];
    return has_blocks(call_.collective) ? start_of(call_.counts, rank) : 0;
  }

  void copy_in(std::size_t k) override {
    for (std::size_t block = 0; block < blocks(); ++block) {
      if (!is_home(block)) continue;
      blocks_.visit(block, k, {0, blocks_.length(block, k)},
                    [&](int rank, std::size_t first, std::size_t offset, std::size_t count) {
                      if (owner(rank) == me()) to_peers(input(k) + offset * item_, source(first), count * item_);
                    });
    }
  }

  void fill_lane(std::size_t k) override {
    for (std::size_t block = 0; block < blocks(); ++block) {
      if (!is_home(block)) continue;
      blocks_.visit(block, k, blocks_.slice(block, k, me()),
                    [&](int rank, std::size_t, std::size_t offset, std::size_t count) {
                      if (owner(rank) == me()) return;
                      const std::byte* const from = input_of(owner(rank), k) + offset * item_;
                      kernels::copy(input(k) + offset * item_, from, count * item_);
                      tally(count * item_);
                    });
    }
  }

  void finish(std::size_t k) override {
    for (std::size_t block = 0; block < blocks(); ++block) {
      for (int lane = 0; lane < lanes(); ++lane) {
        const std::byte* const segment = of_lane(lane, k);
        blocks_.visit(block, k, blocks_.slice(block, k, lane),
                      [&](int rank, std::size_t first, std::size_t offset, std::size_t count) {
                        std::byte* const target = at(call_.output, first * item_);
                        if (coarsens() || !mine(block, rank))
                          from_peer(target, segment + offset * item_, count * item_);
                        else
                          kernels::move(target, source(first), count * item_);
                      });
      }
    }
  }

  const std::size_t own_start_ = own_start();  // elements
};

}  // namespace

std::unique_ptr<TwoLevelPass> make_two_level_move(Epochs& epochs, const Call& call, LaneRun lane) {
  const bool gives = has_blocks(call.collective) || lane.local_root == epochs.node().rank();
  HostBlocks blocks(lane.hosts, call, lane.segment_bytes);
  return std::make_unique<TwoLevelMove>(epochs, call, std::move(lane), std::move(blocks), gives);
}

}  // namespace ringcomm
