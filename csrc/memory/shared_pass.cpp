#include "memory/shared_pass.hpp"

#include <algorithm>

#include "base/tuned.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

SharedPass::SharedPass(Epochs& epochs, const Call& call, std::vector<std::byte*> arrays)
    : epochs_(epochs), call_(call), item_(size_of(call.dtype)), arrays_(std::move(arrays)), targets_(arrays_.size()),
      sources_(arrays_.size()), slice_(slice_of(call.count, item_, epochs.node().size(), epochs.node().rank())) {}

Progress SharedPass::advance() {
  if (stored_) return arrived(epoch_) ? Progress::done : Progress::blocked;
  const Progress progress = store();
  if (progress != Progress::done) return progress;
  epoch_ = epochs_.publish();
  stored_ = true;
  return arrived(epoch_) ? Progress::done : Progress::moved;
}

void SharedPass::nap(std::chrono::nanoseconds longest) {
  if (stored_)
    epochs_.sleep(epoch_, longest.count());
  else
    Task::nap(longest);
}

Progress SharedPass::store() {
  const Part part{slice_.first + done_, std::min(kMemorySegment / item_, slice_.count - done_)};
  for (std::size_t rank = 0; rank < ranks(); ++rank) targets_[rank] = arrays_[rank] + part.first * item_;
  reduce(part, targets_, call_.post);
  done_ += part.count;
  return done_ < slice_.count ? Progress::moved : Progress::done;
}

void SharedPass::reduce(Part part, std::span<void* const> targets, const kernels::Scale& post) {
  for (std::size_t rank = 0; rank < ranks(); ++rank) sources_[rank] = arrays_[rank] + part.first * item_;
  kernels::reduce_many(call_.dtype, call_.op, targets, sources_, part.count, call_.pre, post);
}

}  // namespace ringcomm
