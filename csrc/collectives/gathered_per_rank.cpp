// Gathers into one temporary array, and copies each rank's part to its output.
#include "collectives/gathered_per_rank.hpp"

#include <utility>

#include "base/aligned_bytes.hpp"
#include "collectives/channel.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {
namespace {

class GatheredPerRank final : public Task {
 public:
  GatheredPerRank(Channel& channel, Call&& call)
      : contiguous_(aligned_bytes(call.nbytes())), output_per_rank_(std::exchange(call.output_per_rank, {})),
        counts_(call.counts), item_(size_of(call.dtype)) {
    call.output = contiguous_.get();
    task_ = channel.start(std::move(call));
  }
  Progress advance() override {
    const Progress progress = task_->advance();
    if (progress != Progress::done) return progress;
    const std::byte* part = contiguous_.get();
    for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
      kernels::copy(output_per_rank_[rank], part, counts_[rank] * item_);
      part += counts_[rank] * item_;
    }
    return Progress::done;
  }
  std::string_view label() const override { return task_->label(); }
  void abandon() noexcept override { task_->abandon(); }
  void nap(std::chrono::nanoseconds longest) override { task_->nap(longest); }

 private:
  const std::shared_ptr<std::byte[]> contiguous_;
  const std::vector<void*> output_per_rank_;
  const std::vector<std::size_t> counts_;
  const std::size_t item_;
  std::unique_ptr<Task> task_;
};

}  // namespace

std::unique_ptr<Task> make_gathered_per_rank(Channel& channel, Call&& call) {
  return std::make_unique<GatheredPerRank>(channel, std::move(call));
}

}  // namespace ringcomm
