#include "levels/two_level.hpp"

#include "levels/two_level_pass.hpp"
#include "memory/in_place_or_staged.hpp"

namespace ringcomm {

std::shared_ptr<const Schedule> LaneRun::schedule() const {
  return schedule_for(algorithm, hosts.mine(), hosts.number(), root_host);
}

std::unique_ptr<Task> LaneRun::start(std::shared_ptr<const Schedule> plan, Layout layout, const std::size_t& released,
                                     std::size_t& finished) const {
  RunOptions paced = options;
  paced.released = &released;
  paced.finished = &finished;
  return make_run_schedule(transport, std::move(plan), peers, std::move(layout), nullptr, tags, std::move(paced));
}

void LaneRun::skip(std::size_t segments) const {
  for (std::size_t k = 0; k < segments; ++k) tags.next();
}

TwoLevelPass::TwoLevelPass(Epochs& epochs, const Call& call, LaneRun lane, std::size_t inputs, std::size_t number)
    : StagedPass(epochs, call, true, inputs, std::min(lane.options.window, number)), lane_(std::move(lane)),
      number_(number) {}

void TwoLevelPass::abandon() noexcept {
  if (network_) network_->abandon();
}

// The lane is entered here because its blocks lie in staging memory, which the pass has had only since it was opened.
void TwoLevelPass::work(std::size_t k) {
  if (!in_lane()) {
    if (k == 0) lane_.skip(number_);
    return;
  }
  if (k == 0) {
    auto plan = lane_.schedule();
    Layout layout = lane_layout(*plan);
    network_ = lane_.start(std::move(plan), std::move(layout), filled_, finished_);
  }
  fill_lane(k);
  filled_ = k + 1;
}

// Of every segment, where this rank's slice lies.
Layout SlicedPass::lane_layout(const Schedule& plan) {
  std::vector<Extent> places;
  for (std::size_t k = 0; k < cuts_.segments(); ++k) {
    const Part own = cuts_.slice(k, me());
    places.push_back({input(k) + own.first * item_, own.count});
  }
  return Layout::placed(std::move(places), plan.blocks, item_);
}

Layout BlocksPass::lane_layout(const Schedule& plan) {
  return Layout::found(blocks_.segments(), plan.blocks, item_, [this](std::size_t block, std::size_t k) {
    const int of = static_cast<int>(block);
    const Part own = slice(of, k, me());
    return Extent{input(k) + blocks_.place(of) + own.first * item_, own.count};
  });
}

namespace {

// Hosts need not go the same way: what lanes carry is the same.
class TwoLevelCall final : public Task, private InPlaceOrStaged {
 public:
  TwoLevelCall(Epochs& epochs, const Call& call, LaneRun lane) : InPlaceOrStaged(epochs, call), lane_(std::move(lane)) {
    open();
    epoch_ = epochs_.publish();
  }

  Progress advance() override {
    if (pass_) return pass_->advance();
    if (!arrived_here(epochs_, epoch_, lane_.hosts)) return Progress::blocked;
    begin(epoch_);
    return Progress::moved;
  }
  void abandon() noexcept override {
    if (pass_) pass_->abandon();
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
  std::unique_ptr<Task> in_place(std::vector<std::uint64_t> offsets) override {
    return make_two_level_in_place(epochs_, call_, lane_, std::move(offsets));
  }

  const LaneRun lane_;
  std::uint32_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_two_level(Epochs& epochs, const Call& call, LaneRun lane) {
  return std::make_unique<TwoLevelCall>(epochs, call, std::move(lane));
}

}  // namespace ringcomm
