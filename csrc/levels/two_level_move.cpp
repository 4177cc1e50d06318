// The collectives on two levels that only move data: broadcast, allgather.
#include <cstring>

#include "levels/two_level_pass.hpp"

namespace ringcomm {
namespace {

// The root's segment is in its staging memory; its host's lanes fetch their slices from there, and it goes to all hosts
// once.
class TwoLevelBroadcast final : public TwoLevelPass {
 public:
  TwoLevelBroadcast(Epochs& epochs, const Call& call, LaneRun lane, const LaneSlices& cuts)
      : TwoLevelPass(epochs, call, lane, lane.has() || lane.local_root == epochs.node().rank() ? cuts.bytes() : 0,
                     cuts.segments()),
        cuts_(cuts) {}

 private:
  bool is_root() const { return root() == me(); }
  const std::byte* source(std::size_t k) const { return at(call_.input, cuts_.start(k) * item_); }

  Layout lane_layout(const Schedule& plan) override {
    std::vector<Extent> places;
    for (std::size_t k = 0; k < cuts_.segments(); ++k) {
      const Part own = cuts_.slice(k, me());
      places.push_back({input(k) + own.first * item_, own.count});
    }
    return Layout::placed(std::move(places), plan.blocks, item_);
  }
  void copy_in(std::size_t k) override {
    if (is_root()) to_peers(input(k), source(k), cuts_.length(k) * item_);
  }
  void fill_lane(std::size_t k) override {
    if (root() < 0 || is_root()) return;
    const Part own = cuts_.slice(k, me());
    kernels::copy(input(k) + own.first * item_, input_of(root(), k) + own.first * item_, own.count * item_);
  }
  void finish(std::size_t k) override {
    std::byte* const target = at(call_.output, cuts_.start(k) * item_);
    if (is_root() && !coarsens()) return from_peer(target, source(k), cuts_.length(k) * item_);
    for (int lane = 0; lane < lanes(); ++lane) {
      const Part part = cuts_.slice(k, lane);
      from_peer(target + part.first * item_, of_lane(lane, k) + part.first * item_, part.count * item_);
    }
  }

  const LaneSlices cuts_;
};

// A segment is a cut of every host's blocks. A lane brings its slice of its own host's cut together, and gets those of
// the others; each rank then takes all cuts apart again.
class TwoLevelAllgather final : public TwoLevelPass {
 public:
  TwoLevelAllgather(Epochs& epochs, const Call& call, LaneRun lane, HostBlocks blocks)
      : TwoLevelPass(epochs, call, lane, blocks.bytes(), blocks.segments()), blocks_(std::move(blocks)) {}

 private:
  int host() const { return hosts().mine(); }
  Part slice(int host, std::size_t k, int lane) const {
    return slice_of(blocks_.length(host, k), item_, lanes(), lane);
  }
  // The caller's own block begins here in the array of all.
  std::size_t own_start() const {
    std::size_t first = 0;
    for (int rank = 0; rank < hosts().here()[static_cast<std::size_t>(me())]; ++rank)
      first += call_.counts[static_cast<std::size_t>(rank)];
    return first;
  }

  Layout lane_layout(const Schedule& plan) override {
    return Layout::found(blocks_.segments(), plan.blocks, item_, [this](std::size_t block, std::size_t k) {
      const int of = static_cast<int>(block);
      const Part own = slice(of, k, me());
      return Extent{input(k) + blocks_.place(of) + own.first * item_, own.count};
    });
  }
  void copy_in(std::size_t k) override {
    blocks_.visit(host(), k, {0, blocks_.length(host(), k)},
                  [&](int local, std::size_t first, std::size_t place, std::size_t count) {
                    if (local != me()) return;
                    to_peers(input(k) + blocks_.place(host()) + place * item_,
                             at(call_.input, (first - own_start_) * item_), count * item_);
                  });
  }
  void fill_lane(std::size_t k) override {
    blocks_.visit(host(), k, slice(host(), k, me()), [&](int local, std::size_t, std::size_t place, std::size_t count) {
      const std::size_t bytes = blocks_.place(host()) + place * item_;
      if (local != me()) kernels::copy(input(k) + bytes, input_of(local, k) + bytes, count * item_);
    });
  }
  void finish(std::size_t k) override {
    for (int of = 0; of < hosts().number(); ++of) {
      for (int lane = 0; lane < lanes(); ++lane) {
        const std::byte* const from = of_lane(lane, k) + blocks_.place(of);
        blocks_.visit(of, k, slice(of, k, lane),
                      [&](int local, std::size_t first, std::size_t place, std::size_t count) {
                        std::byte* const target = at(call_.output, first * item_);
                        if (of != host() || local != me() || coarsens())
                          return from_peer(target, from + place * item_, count * item_);
                        const std::byte* const own = at(call_.input, (first - own_start_) * item_);
                        if (target != own) std::memmove(target, own, count * item_);
                      });
      }
    }
  }

  const HostBlocks blocks_;
  const std::size_t own_start_ = own_start();
};

}  // namespace

std::unique_ptr<TwoLevelPass> make_two_level_move(Epochs& epochs, const Call& call, LaneRun lane) {
  if (call.collective == Collective::broadcast) {
    const LaneSlices cuts(call, lane);
    return std::make_unique<TwoLevelBroadcast>(epochs, call, std::move(lane), cuts);
  }
  HostBlocks blocks(lane.hosts, call.counts, size_of(call.dtype), lane.segment_bytes);
  return std::make_unique<TwoLevelAllgather>(epochs, call, std::move(lane), std::move(blocks));
}

}  // namespace ringcomm
