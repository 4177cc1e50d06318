// The collectives on two levels that compute: allreduce, reduce, reducescatter. Sources in the order of ranks, so that
// every slice has one operand order; between hosts the schedule has one.
#include <memory>

#include "levels/two_level_pass.hpp"

namespace ringcomm {
namespace {

// Each lane reduces its slice of a segment, from its own array and the peers' inputs, into its own input, where its own
// slice is not copied in. With a root, only it takes the result.
class TwoLevelReduction final : public SlicedPass {
 public:
  TwoLevelReduction(Epochs& epochs, const Call& call, LaneRun lane, const LaneSlices& cuts)
      : SlicedPass(epochs, call, std::move(lane), cuts.bytes(), cuts) {}

 private:
  bool wanted() const { return call_.collective == Collective::allreduce || root() == me(); }

  void copy_in(std::size_t k) override {
    const Part own = in_lane() ? cuts_.slice(k, me()) : Part{cuts_.length(k), 0};
    const std::size_t behind = own.first + own.count;
    const std::byte* const from = at(call_.input, cuts_.start(k) * item_);
    kernels::copy(input(k), from, own.first * item_);
    kernels::copy(input(k) + behind * item_, from + behind * item_, (cuts_.length(k) - behind) * item_);
  }

  void fill_lane(std::size_t k) override {
    const Part own = cuts_.slice(k, me());
    void* const target = input(k) + own.first * item_;
    sources_.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
      sources_.push_back(rank == me() ? at(call_.input, (cuts_.start(k) + own.first) * item_)
                                      : input_of(rank, k) + own.first * item_);
    }
    kernels::reduce_many(call_.dtype, call_.op, {&target, 1}, sources_, own.count, call_.pre, {});
  }

  void finish(std::size_t k) override {
    if (!wanted()) return;
    for (int lane = 0; lane < lanes(); ++lane) {
      const Part part = cuts_.slice(k, lane);
      kernels::copy(at(call_.output, (cuts_.start(k) + part.first) * item_), of_lane(lane, k) + part.first * item_,
                    part.count * item_);
    }
  }

  std::vector<const void*> sources_;
};

// A segment is a cut of every host's blocks. A lane reduces its slice of each cut in its host, and sends other hosts
// what is theirs; each rank then takes its own block from its host's cut.
class TwoLevelReducescatter final : public BlocksPass {
 public:
  TwoLevelReducescatter(Epochs& epochs, const Call& call, const LaneRun& lane)
      : BlocksPass(epochs, call, lane),
        own_(call.counts[static_cast<std::size_t>(lane.hosts.here()[static_cast<std::size_t>(epochs.node().rank())])]) {
    result_ = static_cast<std::byte*>(call_.output);
    if (!overwrites_input(call_, lane.hosts.here()[static_cast<std::size_t>(me())])) return;
    apart_ = std::make_unique_for_overwrite<std::byte[]>(own_ * item_);
    result_ = apart_.get();
  }

 private:
  void copy_in(std::size_t k) override {
    for (int of = 0; of < hosts().number(); ++of) {
      const std::size_t length = blocks_.length(of, k);
      const Part own = in_lane() ? slice(of, k, me()) : Part{length, 0};  // read at home
      const auto copy = [&](int, std::size_t first, std::size_t place, std::size_t count) {
        kernels::copy(input(k) + blocks_.place(of) + place * item_, at(call_.input, first * item_), count * item_);
      };
      blocks_.visit(of, k, {0, own.first}, copy);
      blocks_.visit(of, k, {own.first + own.count, length - own.first - own.count}, copy);
    }
  }

  void fill_lane(std::size_t k) override {
    for (int of = 0; of < hosts().number(); ++of) {
      blocks_.visit(of, k, slice(of, k, me()), [&](int, std::size_t first, std::size_t place, std::size_t count) {
        const std::size_t bytes = blocks_.place(of) + place * item_;
        void* const target = input(k) + bytes;
        sources_.clear();
        for (int rank = 0; rank < ranks(); ++rank) {
          sources_.push_back(rank == me() ? at(call_.input, first * item_) : input_of(rank, k) + bytes);
        }
        kernels::reduce_many(call_.dtype, call_.op, {&target, 1}, sources_, count, call_.pre, {});
      });
    }
  }

  void finish(std::size_t k) override {
    for (int lane = 0; lane < lanes(); ++lane) {
      const std::byte* const from = of_lane(lane, k) + blocks_.place(host());
      blocks_.visit(host(), k, slice(host(), k, lane),
                    [&](int local, std::size_t, std::size_t place, std::size_t count) {
                      if (local != me()) return;
                      kernels::scale(call_.dtype, result_ + taken_ * item_, from + place * item_, count, call_.post);
                      taken_ += count;  // slices, and segments, come in the array's order
                    });
    }
    if (apart_ && k + 1 == blocks_.segments()) kernels::copy(call_.output, apart_.get(), own_ * item_);
  }

  const std::size_t own_;  // elements of this rank's block
  std::size_t taken_ = 0;
  std::byte* result_ = nullptr;
  std::unique_ptr<std::byte[]> apart_;  // a result that would overwrite input which later segments need
  std::vector<const void*> sources_;
};

}  // namespace

std::unique_ptr<TwoLevelPass> make_two_level_reduction(Epochs& epochs, const Call& call, LaneRun lane) {
  if (call.collective != Collective::reducescatter) {
    const LaneSlices cuts(call, lane);
    return std::make_unique<TwoLevelReduction>(epochs, call, std::move(lane), cuts);
  }
  return std::make_unique<TwoLevelReducescatter>(epochs, call, lane);
}

}  // namespace ringcomm
