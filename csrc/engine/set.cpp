// Implements NamedSet: dispatches records to its parts, runs its turns, and ends it.
#include "engine/set.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/rank_text.hpp"
#include "engine/plans/plan_run.hpp"

namespace ringcomm {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

NamedSet::NamedSet(Context& context, int id, int tags, std::vector<int> ranks_in, std::shared_ptr<Node> node, int slot)
    : id(id), tags(tags), me(index_of(ranks_in, context.rank())), ranks(std::move(ranks_in)), in_flight(context),
      plans(context), context_(context),
      executor_(context, in_flight, plans,
                me < 0 ? nullptr
                       : std::make_unique<Channel>(context.transport, ranks, me, context.tags.of_set(tags), node, slot,
                                                   context.config.channel),
                node),
      member_(context, id, me, in_flight, plans, executor_), stall_(context, id, ranks[0], in_flight) {
  if (coordinates()) coordinator_.emplace(context, id, ranks);
}

int NamedSet::member(int rank) const {
  const int index = index_of(ranks, rank);
  if (index < 0)
    throw Error(ErrorKind::internal, concat("rank ", rank, " sent a message about a process set that it is not in"));
  return index;
}

// ---- messages

void NamedSet::receive(int rank, Record&& record) {
  std::visit(Overloaded{
                 [&](const ReadyRecord& r) { coordinator_.value().receive(member(rank), r); },
                 [&](const WithdrawRecord& r) { coordinator_.value().receive(member(rank), r); },
                 [&](const JoinRecord&) { coordinator_.value().join(member(rank)); },
                 [&](const BlockedRecord& r) { coordinator_.value().block(member(rank), r.read); },
                 [&](const LeavingRecord&) { receive_leaving(rank); },
                 [&](const ConfirmedRecord&) { confirmed_ = true; },
                 [&](VerdictRecord& r) { read(std::move(r)); },
                 [](const auto&) { throw Error(ErrorKind::internal, "a control message names no process set"); },
             },
             record);
}

void NamedSet::to_coordinator(Record&& record) {
  if (coordinates()) {
    receive(context_.rank(), std::move(record));
  } else {
    context_.control.send(ranks[0], record);
  }
}

void NamedSet::receive_leaving(int rank) {
  decide(Coordinator::kAll);  // all operations that were ready on all ranks are decided first
  coordinator_.value().end();
  if (member(rank) == me) {
    confirmed_ = true;
  } else {
    context_.control.send(rank, ConfirmedRecord{static_cast<std::uint32_t>(id)});
  }
}

// ---- a turn

bool NamedSet::send_ready() {
  const std::vector<OperationStatePtr> fresh = in_flight.take_fresh();
  if (failed_) {
    for (const OperationStatePtr& pending : fresh) in_flight.fail(pending, *failed_);
    return !fresh.empty();
  }
  if (auto record = member_.report(fresh)) to_coordinator(std::move(*record));
  for (const OperationStatePtr& pending : fresh) {
    if (pending->kind == OperationState::Kind::join && !pending->done())
      to_coordinator(JoinRecord{static_cast<std::uint32_t>(id)});
  }
  return !fresh.empty();
}

bool NamedSet::decide(std::size_t limit) {
  auto verdicts = coordinator_ ? coordinator_->decide(limit) : std::nullopt;
  if (verdicts) read(std::move(*verdicts));
  return verdicts.has_value();
}

void NamedSet::read(VerdictRecord&& record) {
  if (failed_) return;
  if (const auto why = member_.read(std::move(record))) fail_all(*why);
}

bool NamedSet::execute() {
  bool moved = false;
  try {
    moved = executor_.turn(ends_at_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::left) throw;
    fail(error);  // shared memory shows a departure earlier than messages do
    moved = true;
  }
  if (executor_.executed() >= ends_at_ && !failed_) {
    fail(left_error());
    moved = true;
  }
  for (const auto& plan : plans.all()) moved |= plan->turn();
  return moved;
}

void NamedSet::check_stall(std::int64_t now) {
  if (me < 0 || failed_) return;
  if (stall_.blocked(now)) to_coordinator(BlockedRecord{static_cast<std::uint32_t>(id), member_.verdicts_read()});
  for (WithdrawRecord& record : stall_.check(now, member_, coordinator_ ? &*coordinator_ : nullptr))
    to_coordinator(std::move(record));
}

// ---- the end of the set

// Leaves this set, but not the job. Called if all other ranks will run an operation that this rank
// cannot run: it has cancelled the operation, or has joined and does not know its plan.
void NamedSet::fail_all(const Error& error) {
  const LeaveRecord leave{false, {end()}};
  for (const int rank : ranks) {
    if (rank != context_.rank()) context_.control.send(rank, leave);
  }
  receive_end(context_.rank(), leave.sets[0]);
  fail(error);
}

void NamedSet::receive_end(int rank, const SetEnd& end) {
  if (me < 0 || !contains(ranks, rank)) return;
  if (coordinator_) coordinator_->end();
  ends_at_ = std::min(ends_at_, end.executed);
  // Reports the rank that left first, even if a departure it caused is noticed earlier.
  for (const int leaver : end.because.empty() ? std::vector<int>{rank} : end.because) {
    if (!contains(leavers_, leaver)) leavers_.push_back(leaver);
  }
  for (const auto& plan : plans.all()) plan->end_at(end.steps, left_error());
}

Error NamedSet::left_error() const {
  return Error(ErrorKind::left,
               rank_text(leavers_) + (leavers_.size() > 1 ? " have" : " has") +
                   " left (by shutdown or the end of the script) before this operation completed",
               leavers_);
}

SetEnd NamedSet::end() const { return {static_cast<std::uint32_t>(id), executor_.executed(), plans.steps(), leavers_}; }

void NamedSet::fail(const Error& error) {
  if (!failed_) failed_ = error;
  if (coordinator_) coordinator_->end();
  executor_.drop();
  const bool by_leave = error.kind() == ErrorKind::left;
  // A plan's step that a leaver has completed completes here too; the plan handles other steps.
  for (const auto& plan : plans.all()) {
    if (!by_leave) plan->drop();
  }
  for (const OperationStatePtr& pending : in_flight.all()) {
    if (by_leave && pending->kind == OperationState::Kind::step && pending->agreed) continue;
    in_flight.fail(pending, error);
  }
}

void NamedSet::withdraw() {
  if (withdrawn_ || me < 0) return;
  withdrawn_ = true;
  for (const OperationStatePtr& pending : in_flight.take_fresh()) {
    in_flight.finish(pending, std::make_exception_ptr(
                                  Error(ErrorKind::shut_down, "'" + pending->name + "' was in flight at shutdown")));
  }
  if (!in_flight.all().empty()) to_coordinator(LeavingRecord{static_cast<std::uint32_t>(id)});
}

bool NamedSet::quiescent() const {
  const std::vector<OperationStatePtr> left = in_flight.all();
  if (left.empty()) return true;
  if ((!failed_ && (!confirmed_ || !executor_.idle())) || plans.answering()) return false;
  // A plan's step may still complete if finish() has been called for it.
  return std::none_of(left.begin(), left.end(), [](const OperationStatePtr& pending) {
    return pending->kind == OperationState::Kind::step && pending->agreed && pending->plan->input.whole();
  });
}

}  // namespace ringcomm
