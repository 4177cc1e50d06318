#include "levels/two_level.hpp"

#include "levels/two_level_pass.hpp"
#include "schedule/registry.hpp"

namespace ringcomm {

std::shared_ptr<const Schedule> LaneRun::schedule(Collective collective) const {
  return schedule_for(collective, algorithm, hosts.mine(), hosts.number(), root_host);
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
    auto plan = lane_.schedule(call_.collective);
    Layout layout = lane_layout(*plan);
    network_ = lane_.start(std::move(plan), std::move(layout), filled_, finished_);
  }
  fill_lane(k);
  filled_ = k + 1;
}

namespace {

// Arrays that lie in shared memory stay where they are, in the hope that all of this host do: as HostCall has it
// (node_stage.cpp). Hosts need not do alike: what lanes carry is the same.
class TwoLevelCall final : public Task {
 public:
  TwoLevelCall(Epochs& epochs, const Call& call, LaneRun lane) : epochs_(epochs), call_(call), lane_(std::move(lane)) {
    Opening& mine = epochs_.mine().opening[epochs_.place()];
    mine.offset = mine.staging = kPrivate;
    if (call_.collective == Collective::allreduce && call_.input == call_.output) {
      mine.offset = epochs_.node().offset_of(call_.output, call_.count * size_of(call_.dtype));
    }
    if (mine.offset == kPrivate) open_staged();
    epoch_ = epochs_.publish();
  }

  Progress advance() override {
    if (pass_) return pass_->advance();
    if (!arrived_here(epochs_, epoch_, lane_.hosts)) return Progress::blocked;
    meet();
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
  void open_staged() {
    const bool moves = call_.collective == Collective::broadcast || call_.collective == Collective::allgather;
    staged_ = moves ? make_two_level_move(epochs_, call_, lane_) : make_two_level_reduction(epochs_, call_, lane_);
    staged_->open();
  }

  void meet() {
    std::vector<std::uint64_t> offsets;
    std::size_t shared = 0;
    for (int rank = 0; rank < epochs_.node().size(); ++rank) {
      offsets.push_back(epochs_.mailbox(rank).opening[epochs_.place()].offset);
      if (offsets.back() != kPrivate) ++shared;
    }
    if (shared == offsets.size()) {
      staged_.reset();
      pass_ = make_two_level_in_place(epochs_, call_, lane_, std::move(offsets));
      return;
    }
    if (!staged_) open_staged();
    shared > 0 ? staged_->begin_late() : staged_->begin(epoch_);
    pass_ = std::move(staged_);
  }

  Epochs& epochs_;
  const Call& call_;
  const LaneRun lane_;
  std::uint32_t epoch_ = 0;
  std::unique_ptr<TwoLevelPass> staged_;
  std::unique_ptr<Task> pass_;
};

}  // namespace

std::unique_ptr<Task> make_two_level(Epochs& epochs, const Call& call, LaneRun lane) {
  return std::make_unique<TwoLevelCall>(epochs, call, std::move(lane));
}

}  // namespace ringcomm
