// All-reduce on two levels of arrays that all lie in their host's shared memory: nothing is copied in.
#include <algorithm>

#include "levels/two_level_pass.hpp"
#include "memory/shared_pass.hpp"

namespace ringcomm {
namespace {

// A lane reduces its slices where they lie, from everybody's array into one, its own. The network works on them there,
// and what comes back the lane stores to all others.
class TwoLevelShared final : public SharedPass {
 public:
  TwoLevelShared(Epochs& epochs, const Call& call, LaneRun lane, std::vector<std::byte*> arrays)
      : SharedPass(epochs, call, std::move(arrays)), lane_(std::move(lane)),
        cuts_(call.count, cut_for(lane_.segment_bytes, item_)),
        home_(arrays_[static_cast<std::size_t>(epochs.node().rank())]) {
    const auto where = [this](std::size_t, std::size_t k) {
      const Part own = slice(k);
      return Extent{home_ + own.first * item_, own.count};
    };
    network_ = lane_.start(cuts_.segments(), item_, where, reduced_, finished_);
  }

  void abandon() noexcept override {
    if (network_) network_->abandon();
  }

 private:
  bool arrived(std::uint32_t epoch) override { return arrived_here(epochs_, epoch, lane_.hosts); }
  Part slice(std::size_t k) const {  // of the array
    const Part segment = cuts_.cut(k), own = slice_of(segment.count, item_, lane_.hosts.lanes(), epochs_.node().rank());
    return {segment.first + own.first, own.count};
  }

  Progress store() override {
    if (!network_ || spread_ == cuts_.segments()) return Progress::done;
    bool moved = finished_ < cuts_.segments() && network_->advance() != Progress::blocked;
    moved |= reduce_next();
    moved |= store_next();
    return spread_ == cuts_.segments() ? Progress::done : moved ? Progress::moved : Progress::blocked;
  }

  // No further ahead of the network than it needs: what it takes up is still in the caches then.
  bool reduce_next() {
    if (reduced_ == cuts_.segments() || reduced_ - finished_ > lane_.options.window) return false;
    const Part own = slice(reduced_++);
    void* const target = home_ + own.first * item_;
    reduce(own, {&target, 1}, {});
    return true;
  }

  bool store_next() {
    if (spread_ == finished_) return false;
    const Part own = slice(spread_++);
    const std::byte* const from = home_ + own.first * item_;
    for (std::byte* const array : arrays_)
      kernels::copy(array + own.first * item_, from, own.count * item_, cuts_.segments() >= kManySegments);
    return true;
  }

  const LaneRun lane_;
  const Cuts cuts_;
  std::byte* const home_;  // where this rank's lane works
  std::unique_ptr<Task> network_;
  std::size_t reduced_ = 0, finished_ = 0, spread_ = 0;  // segments
};

}  // namespace

std::unique_ptr<Task> make_two_level_in_place(Epochs& epochs, const Call& call, LaneRun lane,
                                              std::vector<std::byte*> arrays) {
  return std::make_unique<TwoLevelShared>(epochs, call, std::move(lane), std::move(arrays));
}

}  // namespace ringcomm
