#include <algorithm>

#include "memory/staged_pass.hpp"

namespace ringcomm {
namespace {

// All inputs are ready when it is made; its arrival says that its stores are done. Sources are in rank order, so that
// every slice has one operand order.
class SharedPass final : public Task {
 public:
  SharedPass(Epochs& epochs, const Call& call, std::vector<std::uint64_t> offsets)
      : epochs_(epochs), call_(call), item_(size_of(call.dtype)),
        part_(slice_of(call.count, item_, epochs.node().size(), epochs.node().rank())) {
    for (std::size_t rank = 0; rank < offsets.size(); ++rank)
      arrays_.push_back(epochs.node().at(static_cast<int>(rank), offsets[rank]));
    targets_.resize(arrays_.size());
    sources_.resize(arrays_.size());
  }

  Progress advance() override {
    if (stored_) return epochs_.reached(epoch_) ? Progress::done : Progress::blocked;
    reduce_block();
    if (done_ < part_.count) return Progress::moved;
    epoch_ = epochs_.publish();
    stored_ = true;
    return epochs_.reached(epoch_) ? Progress::done : Progress::moved;
  }
  void nap(std::chrono::nanoseconds longest) override {
    if (stored_) epochs_.sleep(epoch_, longest.count());
  }

 private:
  static constexpr std::size_t kBlock = 256 << 10;  // bytes of each array per advance(): the worker has others to serve

  void reduce_block() {
    const std::size_t count = std::min(kBlock / item_, part_.count - done_);
    const std::size_t first = (part_.first + done_) * item_;
    for (std::size_t rank = 0; rank < arrays_.size(); ++rank) sources_[rank] = targets_[rank] = arrays_[rank] + first;
    kernels::reduce_many(call_.dtype, call_.op, targets_, sources_, count, call_.pre, call_.post);
    done_ += count;
  }

  Epochs& epochs_;
  const Call& call_;
  std::vector<std::byte*> arrays_;  // by rank
  std::vector<void*> targets_;
  std::vector<const void*> sources_;
  const std::size_t item_;
  const Part part_;
  std::size_t done_ = 0;  // elements of the slice
  bool stored_ = false;
  std::uint32_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_shared_pass(Epochs& epochs, const Call& call, std::vector<std::uint64_t> offsets) {
  return std::make_unique<SharedPass>(epochs, call, std::move(offsets));
}

}  // namespace ringcomm
