// Implements the staged collectives that copy some ranks' data to all ranks: broadcast, allgather.
#include <algorithm>
#include <memory>

#include "host_collectives/staged_pass.hpp"

namespace ringcomm {
namespace {

// While peers copy a root's segment out, the root copies the next one in. So even a short array of
// a broadcast is cut into a few segments. In an all-gather this would gain nothing.
constexpr std::size_t kOverlapping = 4, kShortest = 16 << 10;

// A pass for both collectives. The sender of a block copies the segments of the block ("cuts") to
// the staging memory of the sender. All ranks copy them from there.
class Move final : public StagedPass {
 public:
  Move(Epochs& epochs, const Call& call, Cuts cuts)
      : StagedPass(epochs, call, false, gives(call, epochs) ? cuts.longest_cut() * size_of(call.dtype) : 0),
        cuts_(std::move(cuts)) {}

 private:
  static bool gives(const Call& call, Epochs& epochs) {
    return !has_root(call.collective) || call.root == epochs.node().rank();
  }
  int giver(std::size_t block) const { return has_root(call_.collective) ? call_.root : static_cast<int>(block); }
  std::size_t inside(std::size_t block, const Part& cut) const { return (cut.first - cuts_.start(block)) * item_; }
  // Returns the source of a cut. The input holds only the data that this rank sends.
  const std::byte* source(std::size_t block, const Part& cut) const { return at(call_.input, inside(block, cut)); }
  std::byte* target(std::size_t block, const Part& cut) const {
    if (has_root(call_.collective)) return at(call_.output, cut.first * item_);
    return call_.part_from(static_cast<int>(block)) + inside(block, cut);
  }

  std::size_t segments() override { return cuts_.segments(); }
  void copy_in(std::size_t k) override {
    for (std::size_t block = 0; block < cuts_.blocks(); ++block) {
      const Part cut = cuts_.cut(block, k);
      if (giver(block) == me()) to_peers(input(k), source(block, cut), cut.count * item_);
    }
  }
  void work(std::size_t k) override {
    for (std::size_t block = 0; block < cuts_.blocks(); ++block) {
      const Part cut = cuts_.cut(block, k);
      if (giver(block) != me())
        from_peer(target(block, cut), input_of(giver(block), k), cut.count * item_);
      else
        kernels::move(target(block, cut), source(block, cut), cut.count * item_);
    }
  }

  const Cuts cuts_;
};

}  // namespace

std::unique_ptr<StagedPass> make_staged_move(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  const std::size_t item = size_of(call.dtype), nbytes = call.count * item;
  if (has_blocks(call.collective))
    return std::make_unique<Move>(epochs, call, Cuts(call.counts, cut_for(segment_bytes, item)));
  const std::size_t segment = std::min(segment_bytes, std::max(kShortest, nbytes / kOverlapping));
  return std::make_unique<Move>(epochs, call, Cuts(call.count, cut_for(segment, item)));
}

}  // namespace ringcomm
