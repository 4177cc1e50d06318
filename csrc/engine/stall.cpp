// Every rank that waits runs its own clock: it warns, and in the end gives up.
#include <algorithm>
#include <cstdio>

#include "base/rank_text.hpp"
#include "engine/plan_run.hpp"
#include "engine/set.hpp"

namespace ringcomm {

namespace {

constexpr std::int64_t kGrace = 5'000'000'000;  // ns for the coordinator to confirm that an operation is given up
constexpr std::size_t kMostNames = 16;          // in one warning

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(std::min(seconds, 9e9) * 1e9); }

std::string seconds_text(std::int64_t ns) { return std::to_string(ns / 1'000'000'000) + " s"; }

}  // namespace

void NamedSet::check_stall(std::int64_t now) {
  const EngineConfig& config = context_.config;
  const std::int64_t warn_after = nanoseconds(config.stall_warn_seconds),
                     fail_after = nanoseconds(config.stall_fail_seconds);
  if (me < 0 || dead_ || (warn_after <= 0 && fail_after <= 0)) return;
  std::vector<PendingPtr> waiting;
  for (const PendingPtr& pending : all()) {
    const std::int64_t age = now - pending->submitted_ns;
    if (pending->sent_ns == 0) {
      const auto gone = abandoned_.find(pending->name);  // held, and still no word
      if (gone != abandoned_.end() && age >= fail_after + kGrace) finish(pending, gone->second);
      continue;
    }
    if (pending->agreed || pending->kind == Pending::Kind::join)
      continue;  // a join waits for as long as others have data
    if (fail_after > 0 && age >= fail_after) withdraw(*pending, now);
    if (warn_after > 0 && age >= warn_after) waiting.push_back(pending);
  }
  if (warn_after > 0 && now - warned_ns_ >= warn_after && (coordinator_ || !waiting.empty())) warn(waiting, now);
}

// The coordinator knows who is missing, also of what only others wait for; the others know what they wait for, and that
// a coordinator which says nothing sleeps: it has not submitted these operations itself.
void NamedSet::warn(std::vector<PendingPtr> waiting, std::int64_t now) {
  std::vector<std::string> lines;
  if (coordinator_) {
    for (const auto& [name, since_ns, here, missing] :
         coordinator_->waiting(now - nanoseconds(context_.config.stall_warn_seconds))) {
      const std::string who = missing.empty() ? "all ranks, but not others of its group"
                                              : rank_text(here) + ", not by " + rank_text(missing);
      lines.push_back("'" + name + "' since " + seconds_text(now - since_ns) + ": submitted by " + who);
    }
  } else {
    std::sort(waiting.begin(), waiting.end(),
              [](const PendingPtr& a, const PendingPtr& b) { return a->submitted_ns < b->submitted_ns; });
    for (const PendingPtr& pending : waiting) {
      lines.push_back("'" + pending->name + "' since " + seconds_text(now - pending->submitted_ns));
    }
  }
  if (lines.empty()) return;
  warned_ns_ = now;
  std::string text = "ringcomm: rank " + std::to_string(context_.rank()) + " waits for other ranks:";
  for (std::size_t i = 0; i < std::min(lines.size(), kMostNames); ++i) text += "\n  " + lines[i];
  if (lines.size() > kMostNames) text += "\n  and " + std::to_string(lines.size() - kMostNames) + " more";
  const std::string first = std::to_string(ranks[0]);
  if (!coordinator_) {
    text += "\n  rank " + first + " tells who has not submitted them; if it says nothing, then rank " + first +
            " itself has not";
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

void NamedSet::take(int rank, const WithdrawRecord& record) {
  const std::vector<int> missing = coordinator_.value().missing(record.name);
  const std::string who = missing.empty() ? "all ranks have submitted it, but not others of its group"
                                          : "not submitted by " + rank_text(missing);
  coordinator_->withdraw(member(rank), record.name, record.why + "; " + who + ": did every rank submit it?");
}

// Asks the coordinator to fail it everywhere. A coordinator that sleeps has not submitted it either and does not
// answer: then it fails here alone, and if it becomes ready everywhere after all, this rank leaves the set (give_up).
void NamedSet::withdraw(Pending& pending, std::int64_t now) {
  const std::string& name = pending.name;
  if (pending.withdrawn_ns == 0) {
    pending.withdrawn_ns = now;
    const std::string why = "'" + name + "' was given up by rank " + std::to_string(context_.rank()) + " after " +
                            seconds_text(now - pending.submitted_ns);
    const WithdrawRecord record{static_cast<std::uint32_t>(id), name, why};
    if (coordinates()) {
      take(context_.rank(), record);
    } else {
      context_.control.send(ranks[0], record);
    }
  } else if (now - pending.withdrawn_ns >= kGrace) {
    const auto error = std::make_exception_ptr(
        Error(ErrorKind::left,
              "'" + name + "' was given up after " + seconds_text(now - pending.submitted_ns) + ": rank " +
                  std::to_string(ranks[0]) + ", which collects who is ready, has not submitted it either",
              {ranks[0]}));
    abandoned_[name] = error;
    if (const PendingPtr whole = find(name)) finish(whole, error);
  }
}

}  // namespace ringcomm
