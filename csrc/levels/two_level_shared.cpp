// All-reduce on two levels of arrays that all lie in their host's shared memory: nothing is copied in.
#include <algorithm>

#include "levels/two_level_pass.hpp"

namespace ringcomm {
namespace {

// All inputs are ready when it is made. A lane reduces its slices where they lie, from everybody's array into one, its
// own; the network works on them there; what comes back it stores to all others, which nobody else
// touches there. An arrival says that its stores are done, so two are all that ranks wait for.
class TwoLevelShared final : public Task {
 public:
  TwoLevelShared(Epochs& epochs, const Call& call, LaneRun lane, const std::vector<std::uint64_t>& offsets)
      : epochs_(epochs), call_(call), lane_(std::move(lane)), cuts_(call, lane_), item_(size_of(call.dtype)) {
    Node& node = epochs_.node();
    for (std::size_t rank = 0; rank < offsets.size(); ++rank)
      arrays_.push_back(node.at(static_cast<int>(rank), offsets[rank]));
    sources_.resize(arrays_.size());
    home_ = arrays_[static_cast<std::size_t>(node.rank())];
    if (lane_.has())
      enter();
    else
      lane_.skip(cuts_.segments());
  }

  Progress advance() override {
    if (stored_) return arrived_here(epochs_, epoch_, lane_.hosts) ? Progress::done : Progress::blocked;
    bool moved = false;
    if (lane_.has()) {
      if (finished_ < cuts_.segments()) moved = network_->advance() != Progress::blocked;
      moved |= reduce_next();
      moved |= store_next();
      if (spread_ < cuts_.segments()) return moved ? Progress::moved : Progress::blocked;
    }
    epoch_ = epochs_.publish();
    stored_ = true;
    return Progress::moved;
  }
  void abandon() noexcept override {
    if (network_) network_->abandon();
  }
  void nap(std::chrono::nanoseconds longest) override {
    if (stored_)
      epochs_.sleep(epoch_, longest.count());
    else
      Task::nap(longest);
  }

 private:
  Part slice(std::size_t k) const {  // of the array
    const Part part = cuts_.slice(k, epochs_.node().rank());
    return {cuts_.start(k) + part.first, part.count};
  }

  void enter() {
    auto plan = lane_.schedule();
    std::vector<Extent> places;
    for (std::size_t k = 0; k < cuts_.segments(); ++k) {
      const Part own = slice(k);
      places.push_back({home_ + own.first * item_, own.count});
    }
    Layout layout = Layout::placed(std::move(places), plan->blocks, item_);
    network_ = lane_.start(std::move(plan), std::move(layout), reduced_, finished_);
  }

  // No further ahead of the network than it needs: what it takes up is still in the caches then.
  bool reduce_next() {
    if (reduced_ == cuts_.segments() || reduced_ - finished_ > lane_.options.window) return false;
    const Part own = slice(reduced_++);
    for (std::size_t i = 0; i < arrays_.size(); ++i) sources_[i] = arrays_[i] + own.first * item_;
    void* const target = home_ + own.first * item_;
    kernels::reduce_many(call_.dtype, call_.op, {&target, 1}, sources_, own.count, call_.pre, {});
    return true;
  }

  bool store_next() {
    if (spread_ == finished_) return false;
    const Part own = slice(spread_++);
    const std::byte* const from = home_ + own.first * item_;
    for (std::byte* const array : arrays_) {
      kernels::copy(array + own.first * item_, from, own.count * item_, cuts_.segments() >= kManySegments);
    }
    return true;
  }

  Epochs& epochs_;
  const Call& call_;
  const LaneRun lane_;
  const LaneSlices cuts_;
  const std::size_t item_;
  std::vector<std::byte*> arrays_;  // by rank
  std::byte* home_ = nullptr;       // where this rank's lane works
  std::vector<const void*> sources_;
  std::unique_ptr<Task> network_;
  std::size_t reduced_ = 0, finished_ = 0, spread_ = 0;  // segments
  bool stored_ = false;
  std::uint32_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_two_level_in_place(Epochs& epochs, const Call& call, LaneRun lane,
                                              std::vector<std::uint64_t> offsets) {
  return std::make_unique<TwoLevelShared>(epochs, call, std::move(lane), offsets);
}

}  // namespace ringcomm
