// The hearing half of a set: verdicts, in the order in which every rank of the set hears them.
#include <algorithm>

#include "base/clock.hpp"
#include "engine/plan_run.hpp"
#include "engine/set.hpp"

namespace ringcomm {

void NamedSet::hear(VerdictRecord&& record) {
  if (dead_) return;
  if (trace().enabled()) {
    const std::int64_t now = now_ns();
    context_.traced("cycle", "cycles", now, now, 0, std::to_string(record.verdicts.size()) + " decided");
  }
  if (record.first != heard_ + 1) throw Error(ErrorKind::internal, "verdicts came out of order");
  for (Verdict& verdict : record.verdicts) {
    ++heard_;
    hear(std::move(verdict));
    if (dead_) return;
  }
}

void NamedSet::hear(Verdict&& verdict) {
  if (verdict.kind == Verdict::Kind::fail) {
    hear_failure(verdict);
    queue_.emplace_back();
  } else if (verdict.kind == Verdict::Kind::all_joined) {
    joined_ = false;
    doomed_.clear();  // what others had submitted then and this rank had not, it never will: all begin anew
    queue_.push_back({.last_joined = verdict.last_joined});
  } else if (!hear_run(verdict)) {
    return;
  }
  for (const std::uint32_t id_gone : verdict.forget) {
    known_.forget(id_gone);
    sent_.erase(id_gone);
  }
}

void NamedSet::hear_failure(Verdict& verdict) {
  if (contains(verdict.absent, me)) return;  // it has an earlier one of that name in flight, or none
  const auto error = std::make_exception_ptr(Error(verdict.error, verdict.why, verdict.ranks));
  for (const VerdictItem& item : verdict.items) {
    if (abandoned_.erase(item.name) > 0) {
      release(item.name);
      continue;
    }
    if (const PendingPtr pending = find(item.name)) {
      finish(pending, error);
    } else if (verdict.early) {
      doomed_[item.name].push_back(error);
    }
  }
}

// What waited for the end of an operation of this name that was given up here is a new one: it goes out in this turn.
void NamedSet::release(const std::string& name) {
  const std::lock_guard lock(context_.mutex);
  for (const PendingPtr& pending : held_) {
    if (pending->name == name && !pending->done()) inbox_.push_back(pending);
  }
  std::erase_if(held_, [&](const PendingPtr& pending) { return pending->name == name; });
}

// False if this rank cannot take part.
bool NamedSet::hear_run(Verdict& verdict) {
  Decided decided{.absent = verdict.absent};
  decided.parts.reserve(verdict.items.size());
  const bool absent = contains(verdict.absent, me);
  const std::int64_t now = now_ns();
  for (VerdictItem& item : verdict.items) {
    for (std::uint32_t id = item.id; id - item.id < item.count; ++id) {
      PendingPtr pending = taking_part(item, id, absent);
      if (!pending) {
        give_up(name_of(item, id), absent);
        return false;
      }
      if (!absent) context_.traced("agree", pending->name, pending->sent_ns, now);
      if (id != 0 && !item.known) known_.learn(id, item.name, pending->signature);
      if (pending->kind == Pending::Kind::step) {
        // has its own channel, so nothing of this set's stream waits for it
        pending->plan->agree(pending, !verdict.absent.empty());
      } else {
        decided.parts.push_back({std::move(pending), std::move(item.sizes)});
      }
    }
  }
  queue_.push_back(std::move(decided));
  return true;
}

// What this rank sent under an id, if it still waits. Spares the way by the name.
PendingPtr NamedSet::take_sent(std::uint32_t id) {
  const auto found = sent_.find(id);
  if (found == sent_.end() || !found->second || found->second->done()) return nullptr;
  return std::exchange(found->second, nullptr);
}

// Null: this rank cannot.
PendingPtr NamedSet::taking_part(const VerdictItem& item, std::uint32_t id, bool absent) {
  PendingPtr pending = item.known && !absent ? take_sent(id) : nullptr;
  if (!pending) {
    const std::string& name = name_of(item, id);
    pending = absent ? stand_in_for(name, item.signature.value()) : find(name);
  }
  if (!pending || (!absent && pending->sent_ns == 0)) return nullptr;
  pending->agreed = true;
  if (absent && pending->signature.plan) {
    pending->kind = Pending::Kind::step;
    pending->plan = plan_of(pending->signature, pending->name);
    if (!pending->plan) return nullptr;
  }
  return pending;
}

const std::string& NamedSet::name_of(const VerdictItem& item, std::uint32_t id) const {
  return item.known ? known_.name_of(id) : item.name;
}

std::shared_ptr<PlanRun> NamedSet::plan_of(const Descriptor& signature, const std::string& name) const {
  for (const auto& plan : all_plans()) {
    if (plan->name() == name && same_signature(plan->signature(), signature)) return plan;
  }
  return nullptr;
}

// All the others were told to run what this rank no longer waits for, or what it has joined in and does not know: it
// takes part in this set no more, and says so.
void NamedSet::give_up(const std::string& name, bool absent) {
  const std::string why = absent ? " has joined, and lacks '" + name + "', which the other ranks have made without it"
                                 : " had given up '" + name + "' when it became ready everywhere";
  const Error error(ErrorKind::left,
                    "rank " + std::to_string(context_.rank()) + why + ", so this process set is of no more use",
                    {context_.rank()});
  const LeaveRecord leave{false, {end()}};
  for (const int rank : ranks) {
    if (rank != context_.rank()) context_.control.send(rank, leave);
  }
  take_end(context_.rank(), leave.sets[0]);
  die(error);
}

void NamedSet::take_end(int rank, const SetEnd& end) {
  if (me < 0 || !contains(ranks, rank)) return;
  if (coordinator_) coordinator_->end();
  ends_at_ = std::min(ends_at_, end.executed);
  // Who began is to blame, also where word of a consequence is heard first.
  for (const int leaver : end.because.empty() ? std::vector<int>{rank} : end.because) {
    if (!contains(leavers_, leaver)) leavers_.push_back(leaver);
  }
  for (const auto& plan : all_plans()) plan->take_end(end.steps);
}

}  // namespace ringcomm
