// Implements the turns of a staged pass, and the allocation of staging memory.
#include "host_collectives/staged_pass.hpp"

#include <algorithm>

#include "base/rank_text.hpp"

namespace ringcomm {

StagedPass::StagedPass(Epochs& epochs, const Call& call, bool reduces, std::size_t inputs, std::size_t depth)
    : call_(call), item_(size_of(call_.dtype)), epochs_(epochs), node_(epochs.node()), reduces_(reduces),
      inputs_(inputs), first_(epochs.staged), depth_(depth) {}

// Frees outgrown memory of a call that failed before turn 0. All ranks have arrived, so none reads
// that memory.
StagedPass::~StagedPass() {
  if (outgrown_) node_.free(*outgrown_);
}

void StagedPass::open() {
  opened_ = true;
  prepare();
  if (!refused_) copy_in(0);
}

void StagedPass::begin(std::uint32_t epoch) { epoch_ = epoch; }

void StagedPass::begin_late() {
  if (!opened_) {
    open();
    // Peers do not read this field before the next arrival; they may be reading the others now.
    epochs_.mine().header[epochs_.parity()].offsets.staging = epochs_.header().offsets.staging;
  }
  arrive();
}

Progress StagedPass::advance() {
  const Progress still = progress() ? Progress::moved : Progress::blocked;
  if (to_finish_) {
    finish(*to_finish_);
    to_finish_.reset();
    return Progress::moved;
  }
  if (!worked_) {
    if (!epochs_.reached(epoch_)) return still;
    if (failure_) throw *failure_;
    if (turn_ == 0 && !prepare_turns()) {
      arrive();
      return Progress::moved;
    }
    if (turn_ < segments_) work(turn_);
    if (turn_ + 1 < segments_) copy_in(turn_ + 1);
    if (turn_ == last_turn_) {
      if (reduces_) finish(segments_ - 1);
      epochs_.staged += segments_;
      return Progress::done;
    }
    worked_ = true;
    progress();
  }
  if (turn_ >= depth_ && turn_ - depth_ < segments_ && !has_result(turn_ - depth_)) return still;
  worked_ = false;
  arrive();
  if (reduces_ && turn_ > depth_) to_finish_ = turn_ - 1 - depth_;
  ++turn_;
  return Progress::moved;
}

// Only an arrival wakes the sleeper; other events that finish a segment do not.
void StagedPass::nap(std::chrono::nanoseconds longest) {
  if (worked_)
    Task::nap(longest);
  else
    epochs_.sleep(epoch_, longest.count());
}

bool StagedPass::prepare_turns() {
  if (!find_areas()) return false;
  segments_ = segments();
  depth_ = std::min(depth_, segments_ - 1);
  last_turn_ = reduces_ ? segments_ + depth_ : segments_ - 1;
  return true;
}

// Ensures that staging memory is large enough for this call's segments. If the allocation fails,
// the call header shows it, so that all ranks fail together.
void StagedPass::prepare() {
  Mailbox& box = epochs_.mine();
  const bool have = box.staging != kPrivate;
  if (have) mine_ = StagingArea(node_.at(me(), box.staging));
  const std::size_t wanted = StagingArea::fitting(inputs_);
  const std::size_t number = depth_ > 0 ? depth_ + 4 : 3;
  if (!have || mine_.segment() < wanted || mine_.inputs() < number) {
    if (have) outgrown_ = box.staging;
    box.staging = kPrivate;
    try {
      const std::uint64_t offset = node_.allocate(StagingArea::nbytes(wanted, number));
      mine_ = StagingArea::make(node_.at(me(), offset), wanted, number);
      box.staging = offset;
    } catch (const Error& error) {
      refused_ = error.what();
    }
  }
  epochs_.header().offsets.staging = box.staging;
}

// Called after the first wait. Finds every rank's staging memory; returns false if some rank has
// none. In that case all ranks arrive once more, so that every rank has read the call headers
// before one changes. Then all ranks throw the same error.
bool StagedPass::find_areas() {
  if (outgrown_) node_.free(*outgrown_);
  outgrown_.reset();
  std::vector<int> without;
  areas_.reserve(static_cast<std::size_t>(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::uint64_t offset = epochs_.header_of(rank).offsets.staging;
    if (offset == kPrivate) without.push_back(rank);
    areas_.push_back(offset == kPrivate ? StagingArea() : StagingArea(node_.at(rank, offset)));
  }
  if (without.empty()) return true;
  const std::string why = refused_ ? " (" + *refused_ + ")" : "";
  const std::string where = concat(name_of(call_.collective), ": ", rank_text(without), " on this host");
  failure_.emplace(refusal(), where + " could not allocate shared memory" + why, without);
  return false;
}

}  // namespace ringcomm
