// Implements Executor: one verdict after the other, until it has run or failed.
#include "engine/executor.hpp"

#include <utility>

#include "base/clock.hpp"

namespace ringcomm {

namespace {
constexpr int kMostVerdicts = 64;  // verdicts before other sets get a turn
}

Executor::Executor(const Context& context, InFlight& in_flight, const PlanTable& plans,
                   std::unique_ptr<Channel> channel, std::shared_ptr<Node> node)
    : context_(context), in_flight_(in_flight), plans_(plans), channel_(std::move(channel)), buffer_(std::move(node)) {}

bool Executor::turn(std::uint64_t end) {
  bool moved = false;
  for (int i = 0; i < kMostVerdicts && executed_ < end && !idle(); ++i) {
    const std::uint64_t before = executed_;
    moved |= look();
    if (executed_ == before) break;
  }
  return moved;
}

bool Executor::look() {
  try {
    if (!current_) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      if (!current_->parts.empty())
        task_ = make_bucket(context_, *channel_, buffer_, current_->parts, !current_->placeholder_ranks.empty());
    }
    if (current_->last_joined >= 0) return end_join();
    const Progress progress = task_ ? task_->advance() : Progress::done;
    if (progress != Progress::done) return progress == Progress::moved;
    end_current(nullptr);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid && error.kind() != ErrorKind::mismatch) throw;
    end_current(std::current_exception());  // all ranks met it before data moved: the next operation can run
  }
  return true;
}

void Executor::end_current(const std::exception_ptr& error) {
  if (task_ && error) task_->abandon();
  task_.reset();
  ++executed_;
  const std::optional<Decided> ended = std::exchange(current_, std::nullopt);
  if (!error && !ended->parts.empty()) count_time(ended->parts);
  in_flight_.finish(ended->parts, error);
}

void Executor::count_time(const std::vector<Agreed>& parts) const {
  const auto entry = channel_->timed_entry();
  if (!entry) return;
  const std::int64_t now = now_ns();
  for (const Agreed& part : parts) {
    if (part.pending->is_placeholder) continue;
    entry->add_time(now - part.pending->submitted_ns);
    part.pending->entry = entry;
  }
}

// Ends a join after all work that this rank takes part in: a rank that returns from a join may
// leave.
bool Executor::end_join() {
  if (plans_.answering()) return false;
  const int last = current_->last_joined;
  end_current(nullptr);
  for (const OperationStatePtr& pending : in_flight_.all()) {
    if (pending->kind != OperationState::Kind::join) continue;
    pending->last_joined = last;
    in_flight_.finish(pending, nullptr);
  }
  return true;
}

void Executor::drop() noexcept {
  if (task_) task_->abandon();
  task_.reset();
  queue_.clear();
  current_.reset();
}

}  // namespace ringcomm
