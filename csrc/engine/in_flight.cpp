// Implements InFlight: the table of pending operations, and their completion.
#include "engine/in_flight.hpp"

#include <utility>

#include "base/clock.hpp"

namespace ringcomm {

void InFlight::require_free(const std::string& name) const {
  if (!by_name_.contains(name)) return;
  throw invalid("an operation named '", name, "' is already in flight: wait for it, or choose another name");
}

void InFlight::insert(OperationStatePtr pending) {
  if (!by_name_.insert(pending).second) require_free(pending->name);
  joining_ |= pending->kind == OperationState::Kind::join;
  fresh_.push_back(std::move(pending));
  has_fresh_.store(true, std::memory_order_release);
  ++context_.open;
}

void InFlight::list(std::vector<std::string>& names) const {
  for (const OperationStatePtr& pending : by_name_) names.push_back(pending->name);
}

std::vector<OperationStatePtr> InFlight::take_fresh() {
  if (!has_fresh_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(context_.mutex);
  has_fresh_.store(false, std::memory_order_relaxed);
  return std::exchange(fresh_, {});
}

void InFlight::put_back(OperationStatePtr pending) {
  const std::lock_guard lock(context_.mutex);
  fresh_.push_back(std::move(pending));
  has_fresh_.store(true, std::memory_order_release);
}

OperationStatePtr InFlight::find(const std::string& name) const {
  const std::lock_guard lock(context_.mutex);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : *found;
}

std::vector<OperationStatePtr> InFlight::all() const {
  const std::lock_guard lock(context_.mutex);
  return {by_name_.begin(), by_name_.end()};
}

// Removes the operation before it is announced as finished, because its name may be submitted again
// from then on. The mutex is held. Returns false if the operation had finished before.
bool InFlight::withdraw(const OperationStatePtr& pending) {
  const auto found = by_name_.find(pending);
  if (found == by_name_.end() || *found != pending) return false;
  by_name_.erase(found);
  if (pending->kind == OperationState::Kind::join) joining_ = false;
  --context_.open;
  return true;
}

void InFlight::finish(const std::vector<Agreed>& parts, const std::exception_ptr& error) {
  std::vector<char> waited;
  waited.reserve(parts.size());
  {
    const std::lock_guard lock(context_.mutex);
    for (const Agreed& part : parts) waited.push_back(withdraw(part.pending));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (waited[i]) announce(*parts[i].pending, error);
  }
}

void InFlight::finish(const OperationStatePtr& pending, const std::exception_ptr& error) {
  finish(std::vector{Agreed{pending, {}}}, error);
}

void InFlight::fail(const OperationStatePtr& pending, const Error& error) {
  finish(pending, std::make_exception_ptr(error.about(pending->name)));
}

void InFlight::announce(OperationState& pending, std::exception_ptr error) {
  if (trace().enabled()) {
    const std::int64_t now = now_ns();
    if (pending.runs() && pending.sent_ns == 0)  // the operation ends before this rank reports it as ready
      context_.traced("queue", pending.name, pending.submitted_ns, now);
    context_.traced("done", pending.name, now, now, 0, error ? "failed" : "");
  }
  pending.conclude(std::move(error));
}

}  // namespace ringcomm
