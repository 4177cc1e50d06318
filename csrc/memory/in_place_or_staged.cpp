#include "memory/in_place_or_staged.hpp"

#include <utility>

namespace ringcomm {

// A shared array stays where it is, in the hope that everybody's is shared.
void InPlaceOrStaged::open() {
  Opening& mine = epochs_.mine().opening[epochs_.place()];
  mine.offset = mine.staging = kPrivate;
  if (call_.collective == Collective::allreduce && call_.input == call_.output && call_.fragments.empty())
    mine.offset = epochs_.node().offset_of(call_.output, call_.count * size_of(call_.dtype));
  if (mine.offset != kPrivate) return;
  staged_ = through_staging();
  staged_->open();
}

void InPlaceOrStaged::begin(std::uint32_t epoch) {
  std::vector<std::uint64_t> offsets;
  std::size_t shared = 0;
  for (int rank = 0; rank < epochs_.node().size(); ++rank) {
    offsets.push_back(epochs_.mailbox(rank).opening[epochs_.place()].offset);
    if (offsets.back() != kPrivate) ++shared;
  }
  if (shared == offsets.size()) {
    pass_ = in_place(std::move(offsets));
    return;
  }
  if (!staged_) staged_ = through_staging();
  shared > 0 ? staged_->begin_late() : staged_->begin(epoch);
  pass_ = std::move(staged_);
}

}  // namespace ringcomm
