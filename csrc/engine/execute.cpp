// The executing half of a set: its verdicts in order, one at a time; how it ends.
#include <algorithm>

#include "engine/plan_run.hpp"
#include "engine/set.hpp"

namespace ringcomm {

namespace {
constexpr int kMostSteps = 64;  // verdicts before other sets have their turn
}

bool NamedSet::execute() {
  bool moved = false;
  for (int done = 0; done < kMostSteps; ++done) {
    if (executed_ >= ends_at_ && !dead_) {
      die(left_error());
      moved = true;
    }
    if (dead_ || (!current_ && queue_.empty())) break;
    const std::uint64_t before = executed_;
    moved |= step();
    if (executed_ == before) break;
  }
  for (const auto& plan : all_plans()) moved |= plan->turn();
  return moved;
}

std::vector<std::shared_ptr<PlanRun>> NamedSet::all_plans() const {
  const std::lock_guard lock(context_.mutex);
  std::vector<std::shared_ptr<PlanRun>> open;
  for (const auto& plan : plans) {
    if (plan) open.push_back(plan);
  }
  return open;
}

// One look at the current verdict; ++executed_ once it is over.
bool NamedSet::step() {
  try {
    if (!current_) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      if (!current_->parts.empty())
        task_ = make_bucket(context_, *channel_, buffer_, current_->parts, !current_->absent.empty());
    }
    if (current_->last_joined >= 0) return end_join(current_->last_joined);
    if (!task_) {
      end_current(nullptr);
      return true;
    }
    const Progress progress = task_->advance();
    if (progress != Progress::done) return progress == Progress::moved;
    end_current(nullptr);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::left) {  // seen in the host's memory sooner than in a message
      die(error);
    } else if (error.kind() == ErrorKind::invalid || error.kind() == ErrorKind::mismatch) {
      end_current(std::current_exception());  // all ranks met it before data moved: the next operation is fine
    } else {
      throw;
    }
  }
  return true;
}

void NamedSet::end_current(const std::exception_ptr& error) {
  if (task_ && error) task_->abandon();
  task_.reset();
  ++executed_;
  const std::optional<Decided> ended = std::exchange(current_, std::nullopt);
  finish(ended->parts, error);
}

// After all that this rank has taken part in: who comes back from a join may leave.
bool NamedSet::end_join(int last) {
  if (answering()) return false;
  end_current(nullptr);
  for (const PendingPtr& pending : all()) {
    if (pending->kind != Pending::Kind::join) continue;
    pending->last_joined = last;
    finish(pending, nullptr);
  }
  return true;
}

bool NamedSet::answering() const {
  const auto open = all_plans();
  return std::any_of(open.begin(), open.end(), [](const auto& plan) { return plan->answering(); });
}

bool NamedSet::moving() const {
  if (task_) return true;
  const std::lock_guard lock(context_.mutex);
  return std::any_of(plans.begin(), plans.end(), [](const auto& plan) { return plan && plan->moving(); });
}

Error NamedSet::left_error() const {
  std::string who;
  for (const int rank : leavers_) who += (who.empty() ? "" : ", ") + std::to_string(rank);
  const bool many = leavers_.size() > 1;
  return Error(ErrorKind::left,
               std::string(many ? "ranks " : "rank ") + who + (many ? " have" : " has") +
                   " left (by shutdown or the end of the script) without this operation",
               leavers_);
}

SetEnd NamedSet::end() const {
  SetEnd end{static_cast<std::uint32_t>(id), executed_, {}, leavers_};
  const std::lock_guard lock(context_.mutex);
  end.steps.assign(past_steps.begin(), past_steps.end());
  for (const auto& plan : plans) {
    if (plan) end.steps.emplace_back(plan->name(), plan->steps());
  }
  return end;
}

void NamedSet::die(const Error& error) {
  if (!dead_) dead_ = error;
  if (coordinator_) coordinator_->end();
  if (task_) task_->abandon();
  task_.reset();
  queue_.clear();
  current_.reset();
  const bool by_leave = error.kind() == ErrorKind::left;
  // A plan's step that a leaver has completed completes here too; the plan itself sees to the others.
  for (const auto& plan : all_plans()) {
    if (!by_leave) plan->drop();
  }
  for (const PendingPtr& pending : all()) {
    if (by_leave && pending->kind == Pending::Kind::step && pending->agreed) continue;
    finish(pending,
           std::make_exception_ptr(Error(error.kind(), "'" + pending->name + "': " + error.what(), error.ranks())));
  }
}

void NamedSet::go() {
  if (going_ || me < 0) return;
  going_ = true;
  std::vector<PendingPtr> unsent;
  {
    const std::lock_guard lock(context_.mutex);
    unsent.swap(inbox_);
    if (in_flight_.empty()) return;
  }
  for (const PendingPtr& pending : unsent) {
    finish(pending,
           std::make_exception_ptr(Error(ErrorKind::shut_down, "'" + pending->name + "' was in flight at shutdown")));
  }
  if (coordinates()) {
    take_going(context_.rank());
  } else {
    context_.control.send(ranks[0], GoingRecord{static_cast<std::uint32_t>(id)});
  }
}

bool NamedSet::settled() const {
  const std::vector<PendingPtr> left = all();
  if (left.empty()) return true;
  if ((!dead_ && (!confirmed_ || task_ || !queue_.empty())) || answering()) return false;
  // A plan's step may still complete if nothing more has to be filled.
  return std::none_of(left.begin(), left.end(), [](const PendingPtr& pending) {
    return pending->kind == Pending::Kind::step && pending->agreed && pending->plan->finishing();
  });
}

}  // namespace ringcomm
