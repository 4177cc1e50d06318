// Implements the parts that all collectives on two levels share.
#include "hierarchical/two_level.hpp"

#include "hierarchical/two_level_pass.hpp"
#include "host_collectives/memory_pass.hpp"

namespace ringcomm {

std::unique_ptr<Task> LaneRun::start(std::size_t segments, std::size_t item, Layout::Where where,
                                     const std::size_t& released, std::size_t& finished) const {
  if (!has()) {
    for (std::size_t k = 0; k < segments; ++k) tags.next();
    return nullptr;
  }
  auto plan = schedules.get(algorithm, hosts.mine(), hosts.number(), root_host);
  const auto blocks = static_cast<std::size_t>(plan->blocks);
  Layout layout = has_blocks(algorithm.collective) ? Layout::listed(segments, blocks, item, std::move(where))
                                                   : Layout::even(segments, blocks, item, std::move(where));
  RunOptions paced = options;
  paced.released = &released;
  paced.finished = &finished;
  return make_run_schedule(transport, std::move(plan), peers, std::move(layout), nullptr, tags, std::move(paced));
}

TwoLevelPass::TwoLevelPass(Epochs& epochs, const Call& call, LaneRun lane, HostBlocks blocks, bool brings)
    : StagedPass(epochs, call, true, brings || lane.has() ? blocks.cuts().segment() * size_of(call.dtype) : 0,
                 std::min(lane.options.window, blocks.cuts().segments())),
      blocks_(std::move(blocks)), lane_(std::move(lane)) {}

void TwoLevelPass::abandon() noexcept {
  if (network_) network_->abandon();
}

bool TwoLevelPass::is_home(std::size_t block) const {
  if (has_blocks(call_.collective)) return block == static_cast<std::size_t>(hosts().mine());
  return !has_root(call_.collective) || lane_.local_root >= 0;
}

int TwoLevelPass::owner(int rank) const {
  if (has_blocks(call_.collective)) return rank;
  return has_root(call_.collective) ? lane_.local_root : me();
}

// Starts the lane when the first segment is worked on, not in the constructor: the slices of the
// lane are in staging memory, which the pass has only after open().
void TwoLevelPass::work(std::size_t k) {
  if (k == 0) {
    const auto slice = [this](std::size_t block, std::size_t segment) {
      const Part own = blocks_.slice(block, segment, me());
      return Extent{input(segment) + (blocks_.cuts().slot(block) + own.first) * item_, own.count,
                    segment * blocks_.cuts().each() + own.first};
    };
    network_ = lane_.start(segments(), item_, slice, filled_, finished_);
  }
  if (in_lane()) fill_lane(k);
  filled_ = k + 1;
}

namespace {

// A call on two levels. One host may work in place and another through staging memory, because the
// lanes exchange the same data in both cases.
class TwoLevelCall final : public MemoryPass {
 public:
  TwoLevelCall(Epochs& epochs, const Call& call, LaneRun lane) : MemoryPass(epochs, call), lane_(std::move(lane)) {
    open();
    epoch_ = epochs_.publish();
  }

  Progress advance() override {
    if (pass_) return pass_->advance();
    if (!epochs_.reached(epoch_)) return Progress::blocked;
    begin(epoch_);
    return Progress::moved;
  }
  void nap(std::chrono::nanoseconds longest) override {
    if (pass_)
      pass_->nap(longest);
    else
      epochs_.sleep(epoch_, longest.count());
  }

 private:
  std::unique_ptr<StagedPass> through_staging() override {
    return computes(call_.collective) ? make_two_level_reduction(epochs_, call_, lane_)
                                      : make_two_level_move(epochs_, call_, lane_);
  }
  std::unique_ptr<Task> in_place(std::uint32_t, bool& any) override {
    auto arrays = HostArrays::collect(epochs_, call_, any);
    return arrays ? make_two_level_in_place(epochs_, call_, lane_, *std::move(arrays)) : nullptr;
  }

  const LaneRun lane_;
  std::uint32_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_two_level(Epochs& epochs, const Call& call, LaneRun lane) {
  return std::make_unique<TwoLevelCall>(epochs, call, std::move(lane));
}

}  // namespace ringcomm
