// Gathers the ranks' counts, and then their parts.
#include "collectives/gathered_any.hpp"

#include <utility>

#include "base/aligned_bytes.hpp"
#include "collectives/channel.hpp"

namespace ringcomm {
namespace {

class GatheredAny final : public Task {
 public:
  GatheredAny(Channel& channel, Call&& call)
      : channel_(channel), call_(std::move(call)), received_(*std::exchange(call_.received, nullptr)),
        own_(call_.count), numbers_(static_cast<std::size_t>(channel.size())) {
    Call counts;
    counts.collective = Collective::allgather;
    counts.dtype = DType::uint64;
    counts.counts.assign(numbers_.size(), 1);
    counts.input = &own_;
    counts.output = numbers_.data();
    counts.name = call_.name;
    counts.is_subcall = true;
    task_ = channel.start(std::move(counts));
  }

  Progress advance() override {
    const Progress progress = task_->advance();
    if (progress != Progress::done || !received_.counts.empty()) return progress;
    task_.reset();
    received_.counts.assign(numbers_.begin(), numbers_.end());
    call_.counts = received_.counts;
    call_.count = 0;
    received_.output_bytes = call_.nbytes();
    received_.output = aligned_bytes(received_.output_bytes);
    call_.output = received_.output.get();
    task_ = channel_.start(std::move(call_));
    return Progress::moved;
  }
  std::string_view label() const override { return task_ ? task_->label() : std::string_view(); }
  void abandon() noexcept override {
    if (task_) task_->abandon();
  }
  void nap(std::chrono::nanoseconds longest) override { task_->nap(longest); }

 private:
  Channel& channel_;
  Call call_;
  Received& received_;
  const std::uint64_t own_;
  std::vector<std::uint64_t> numbers_;
  std::unique_ptr<Task> task_;
};

}  // namespace

std::unique_ptr<Task> make_gathered_any(Channel& channel, Call&& call) {
  return std::make_unique<GatheredAny>(channel, std::move(call));
}

}  // namespace ringcomm
