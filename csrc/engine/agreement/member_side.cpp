// Implements MemberSide: reports, the reading of verdicts, and abandoned operations.
#include "engine/agreement/member_side.hpp"

#include <utility>

#include "base/clock.hpp"
#include "engine/agreement/signature.hpp"
#include "engine/plans/plan_run.hpp"

namespace ringcomm {

namespace {
constexpr std::uint64_t kReportEvery = 256;  // verdicts
}

MemberSide::MemberSide(const Context& context, int set, int me, InFlight& in_flight, const PlanTable& plans,
                       Executor& executor)
    : context_(context), set_(set), me_(me), in_flight_(in_flight), plans_(plans), executor_(executor) {}

// ---- operations that became ready here

std::optional<ReadyRecord> MemberSide::report(const std::vector<OperationStatePtr>& fresh) {
  ReadyRecord record{static_cast<std::uint32_t>(set_), read_, {}};
  const std::int64_t now = fresh.empty() ? 0 : now_ns();
  for (const OperationStatePtr& pending : fresh) {
    if (is_over(pending)) continue;
    pending->sent_ns = now;
    joined_ |= pending->kind == OperationState::Kind::join;
    if (!pending->runs()) continue;
    context_.traced("queue", pending->name, pending->submitted_ns, now);
    append(record.entries, ready_of(pending));
  }
  // A rank that has joined sends no other message that shows how many verdicts it has read.
  if (record.entries.empty() && !(joined_ && read_ - reported_ >= kReportEvery)) return std::nullopt;
  reported_ = read_;
  return record;
}

// Returns true if the operation has ended before it is sent, or if it is delayed.
bool MemberSide::is_over(const OperationStatePtr& pending) {
  if (pending->done()) return true;  // an early failure finished it here
  if (!pending->runs()) return false;
  if (abandoned_.contains(pending->name)) {
    held_.push_back(pending);
    return true;
  }
  const auto failed = failed_before_submit_.find(pending->name);
  if (failed == failed_before_submit_.end()) return false;
  in_flight_.finish(pending, failed->second.front());
  failed->second.pop_front();
  if (failed->second.empty()) failed_before_submit_.erase(failed);
  return true;
}

// Returns the id of the operation; 0: it has none. A cached id is valid as long as no id is
// forgotten.
std::uint32_t MemberSide::id_of(OperationState& pending) const {
  if (pending.sent_as == 0 || pending.sent_in != set_ || pending.sent_at != known_.forgets()) {
    pending.sent_in = set_;
    pending.sent_at = known_.forgets();
    pending.sent_as = known_.find(pending.name, pending.signature);
  }
  return pending.sent_as;
}

Ready MemberSide::ready_of(const OperationStatePtr& pending) {
  const bool request = pending->kind == OperationState::Kind::request;
  Ready ready;
  ready.id = id_of(*pending);
  if (ready.id == 0) {
    ready.signature = pending->signature;
    ready.name = pending->name;
  } else if (request) {
    sent_[ready.id] = pending;
  }
  if (request) {
    ready.extra = extra_of(pending->request);
    ready.priority = pending->request.priority;
  }
  ready.group = pending->group;
  ready.group_size = pending->group_size;
  return ready;
}

// ---- verdicts, in the order in which every rank of the set reads them

std::optional<Error> MemberSide::read(VerdictRecord&& record) {
  if (trace().enabled()) {
    const std::int64_t now = now_ns();
    context_.traced("cycle", "cycles", now, now, 0, std::to_string(record.verdicts.size()) + " decided");
  }
  if (record.first != read_ + 1) throw Error(ErrorKind::internal, "the coordinator's decisions arrived out of order");
  for (Verdict& verdict : record.verdicts) {
    ++read_;
    if (verdict.kind == Verdict::Kind::fail) {
      read_failure(verdict);
      executor_.push({});
    } else if (verdict.kind == Verdict::Kind::all_joined) {
      joined_ = false;
      failed_before_submit_
          .clear();  // this rank never submits what other ranks submitted during its join: its next operations are new
      executor_.push({.last_joined = verdict.last_joined});
    } else if (auto why = read_run(verdict)) {
      return why;
    }
    for (const std::uint32_t id : verdict.forget) {
      known_.forget(id);
      sent_.erase(id);
    }
  }
  return std::nullopt;
}

void MemberSide::read_failure(const Verdict& verdict) {
  if (contains(verdict.placeholder_ranks, me_))
    return;  // this rank has joined: an operation of this name in flight here is an earlier one
  const auto error = std::make_exception_ptr(Error(verdict.error, verdict.why, verdict.ranks));
  for (const VerdictItem& item : verdict.items) {
    if (abandoned_.erase(item.name) > 0) {
      release(item.name);
    } else if (const OperationStatePtr pending = in_flight_.find(item.name)) {
      in_flight_.finish(pending, error);
    } else if (verdict.early) {
      failed_before_submit_[item.name].push_back(error);
    }
  }
}

std::optional<Error> MemberSide::read_run(Verdict& verdict) {
  Decided decided{.placeholder_ranks = verdict.placeholder_ranks};
  decided.parts.reserve(verdict.items.size());
  const bool joined = contains(verdict.placeholder_ranks, me_);
  const std::int64_t now = now_ns();
  for (VerdictItem& item : verdict.items) {
    for (std::uint32_t id = item.id; id - item.id < item.count; ++id) {
      OperationStatePtr pending = operation_for(item, id, joined);
      if (!pending) return cannot_run(name_of(item, id), joined);
      pending->agreed = true;
      if (!joined) context_.traced("agree", pending->name, pending->sent_ns, now);
      if (id != 0 && !item.known) known_.learn(id, item.name, pending->signature);
      if (pending->kind == OperationState::Kind::step) {
        // a plan has its own channel, so no other operation of this set waits for it
        pending->plan->agree(pending, !verdict.placeholder_ranks.empty());
      } else {
        decided.parts.push_back({std::move(pending), std::move(item.sizes)});
      }
    }
  }
  executor_.push(std::move(decided));
  return std::nullopt;
}

// Returns this rank's operation, or a placeholder if it has joined; null if it cannot take part.
OperationStatePtr MemberSide::operation_for(const VerdictItem& item, std::uint32_t id, bool joined) {
  if (joined) return placeholder_for(item, name_of(item, id));
  OperationStatePtr pending = item.known ? take_sent(id) : nullptr;
  if (!pending) pending = in_flight_.find(name_of(item, id));
  return pending && pending->sent_ns != 0 ? pending : nullptr;
}

OperationStatePtr MemberSide::placeholder_for(const VerdictItem& item, const std::string& name) const {
  OperationStatePtr pending = make_placeholder(name, item.signature.value());
  if (pending->kind != OperationState::Kind::step) return pending;
  pending->plan = plans_.find(name, pending->signature);
  return pending->plan ? pending : nullptr;
}

// Returns the operation that this rank sent under an id, if it still waits. Saves a lookup by name.
OperationStatePtr MemberSide::take_sent(std::uint32_t id) {
  const auto found = sent_.find(id);
  if (found == sent_.end() || !found->second || found->second->done()) return nullptr;
  return std::exchange(found->second, nullptr);
}

const std::string& MemberSide::name_of(const VerdictItem& item, std::uint32_t id) const {
  return item.known ? known_.name_of(id) : item.name;
}

Error MemberSide::cannot_run(const std::string& name, bool joined) const {
  const std::string why = joined ? " has joined and does not have '" + name + "', which the other ranks created"
                                 : " had cancelled '" + name + "' before all ranks submitted it";
  return Error(ErrorKind::left, concat("rank ", context_.rank(), why, ", so this process set can no longer be used"),
               {context_.rank()});
}

// ---- operations abandoned without the coordinator's answer

void MemberSide::abandon(const OperationStatePtr& pending, const Error& error) {
  abandoned_.insert_or_assign(pending->name, error);
  in_flight_.finish(pending, std::make_exception_ptr(error));
}

const Error* MemberSide::abandoned(const std::string& name) const {
  const auto found = abandoned_.find(name);
  return found == abandoned_.end() ? nullptr : &found->second;
}

// Submits the delayed operation of this name, because the abandoned one has ended.
void MemberSide::release(const std::string& name) {
  for (const OperationStatePtr& pending : held_) {
    if (pending->name == name && !pending->done()) in_flight_.put_back(pending);
  }
  std::erase_if(held_, [&](const OperationStatePtr& pending) { return pending->name == name; });
}

}  // namespace ringcomm
