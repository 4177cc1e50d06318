// The collectives on two levels that only move data: broadcast, allgather.
#include <cstring>

#include "levels/two_level_pass.hpp"

namespace ringcomm {
namespace {

// The root's segment is in its staging memory; its host's lanes fetch their slices from there, and it goes to all hosts
// once.
class TwoLevelBroadcast final : public SlicedPass {
 public:
  TwoLevelBroadcast(Epochs& epochs, const Call& call, LaneRun lane, const LaneSlices& cuts)
      : SlicedPass(epochs, call, lane, lane.has() || lane.local_root == epochs.node().rank() ? cuts.bytes() : 0, cuts) {
  }

 private:
  bool is_root() const { return root() == me(); }
  const std::byte* source(std::size_t k) const { return at(call_.input, cuts_.start(k) * item_); }

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
};

// A segment is a cut of every host's blocks. A lane brings its slice of its own host's cut together, and gets those of
// the others; each rank then takes all cuts apart again.
class TwoLevelAllgather final : public BlocksPass {
 public:
  TwoLevelAllgather(Epochs& epochs, const Call& call, const LaneRun& lane) : BlocksPass(epochs, call, lane) {}

 private:
  // The caller's own block begins here in the array of all.
  std::size_t own_start() const {
    std::size_t first = 0;
    for (int rank = 0; rank < hosts().here()[static_cast<std::size_t>(me())]; ++rank)
      first += call_.counts[static_cast<std::size_t>(rank)];
    return first;
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

  const std::size_t own_start_ = own_start();
};

}  // namespace

std::unique_ptr<TwoLevelPass> make_two_level_move(Epochs& epochs, const Call& call, LaneRun lane) {
  if (call.collective == Collective::broadcast) {
    const LaneSlices cuts(call, lane);
    return std::make_unique<TwoLevelBroadcast>(epochs, call, std::move(lane), cuts);
  }
  return std::make_unique<TwoLevelAllgather>(epochs, call, lane);
}

}  // namespace ringcomm
