// Implements StallWatch: warnings, withdrawals, and the detection of deadlocks.
#include "engine/agreement/stall_watch.hpp"

#include <algorithm>
#include <cstdio>

namespace ringcomm {

namespace {

constexpr std::int64_t kGrace = 5'000'000'000;  // ns for the coordinator to confirm a withdrawal
constexpr std::size_t kMostNames = 16;          // in one warning

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(std::clamp(seconds, 0.0, 9e9) * 1e9); }

// Returns whether the operation waits for other ranks. A join does not count, because it may wait
// for as long as other ranks have data.
bool waits(const OperationState& pending) { return pending.sent_ns != 0 && !pending.agreed && pending.runs(); }

}  // namespace

StallWatch::StallWatch(const Context& context, int set, int first, InFlight& in_flight)
    : context_(context), set_(set), first_(first), in_flight_(in_flight),
      warn_after_(nanoseconds(context.config.stall_warn_seconds)),
      fail_after_(nanoseconds(context.config.stall_fail_seconds)) {}

std::vector<WithdrawRecord> StallWatch::check(std::int64_t now, MemberSide& member,
                                              const CoordinatorSide* coordinator) {
  std::vector<WithdrawRecord> withdrawn;
  if (fail_after_ > 0) {
    for (const OperationStatePtr& pending : in_flight_.all()) {
      if (now - pending->submitted_ns >= fail_after_) give_up(pending, now, member, withdrawn);
    }
  }
  if (warn_after_ > 0 && now - warned_ns_ >= warn_after_) {
    // The coordinator knows which ranks are missing, also for operations that it has not submitted.
    // Other ranks know only their own pending operations.
    const auto lines = coordinator ? coordinator->stalled(now - warn_after_, now) : own_lines(now);
    if (!lines.empty()) {
      warned_ns_ = now;
      warn(lines, coordinator != nullptr);
    }
  }
  return withdrawn;
}

bool StallWatch::blocked(std::int64_t now) {
  if (warn_after_ == 0 || now - blocked_ns_ < warn_after_) return false;
  const std::vector<OperationStatePtr> all = in_flight_.all();
  const auto overdue = [&](const OperationStatePtr& operation) {
    return waits(*operation) && now - operation->submitted_ns >= 2 * warn_after_;
  };
  const auto has_waiter = [](const OperationStatePtr& operation) {
    return operation->waiters.load(std::memory_order_relaxed) > 0;
  };
  if (all.size() != context_.in_flight() || !std::all_of(all.begin(), all.end(), overdue) ||
      std::none_of(all.begin(), all.end(), has_waiter))
    return false;
  blocked_ns_ = now;
  return true;
}

// Asks the coordinator to fail the operation on all ranks. If the coordinator's rank has not
// submitted the operation, its worker may sleep and not answer. The operation then fails on this
// rank only. If it becomes ready on all ranks later, this rank leaves the set.
void StallWatch::give_up(const OperationStatePtr& pending, std::int64_t now, MemberSide& member,
                         std::vector<WithdrawRecord>& withdrawn) {
  const std::string& name = pending->name;
  const std::int64_t age = now - pending->submitted_ns;
  if (pending->sent_ns == 0) {
    const Error* const before = member.abandoned(name);  // error of the operation that delays this one
    if (before && age >= fail_after_ + kGrace) in_flight_.finish(pending, std::make_exception_ptr(*before));
  } else if (!waits(*pending)) {
    return;
  } else if (pending->withdrawn_ns == 0) {
    pending->withdrawn_ns = now;
    withdrawn.push_back(
        {static_cast<std::uint32_t>(set_), name,
         concat("rank ", context_.rank(), " cancelled '", name, "' after waiting ", seconds_text(age))});
  } else if (now - pending->withdrawn_ns >= kGrace) {
    member.abandon(pending,
                   Error(ErrorKind::left,
                         concat("rank ", context_.rank(), " cancelled '", name, "' after waiting ", seconds_text(age),
                                ": rank ", first_, ", which coordinates its process set, does not respond"),
                         {first_}));
  }
}

std::vector<std::string> StallWatch::own_lines(std::int64_t now) const {
  std::vector<OperationStatePtr> waiting = in_flight_.all();
  std::erase_if(waiting, [&](const OperationStatePtr& operation) {
    return !waits(*operation) || now - operation->submitted_ns < warn_after_;
  });
  std::sort(waiting.begin(), waiting.end(),
            [](const OperationStatePtr& a, const OperationStatePtr& b) { return a->submitted_ns < b->submitted_ns; });
  std::vector<std::string> lines;
  for (const OperationStatePtr& pending : waiting)
    lines.push_back("'" + pending->name + "' for " + seconds_text(now - pending->submitted_ns));
  return lines;
}

void StallWatch::warn(const std::vector<std::string>& lines, bool coordinates) const {
  std::string text =
      concat("ringcomm: rank ", context_.rank(), " reports operations that are waiting for other ranks:");
  for (std::size_t i = 0; i < std::min(lines.size(), kMostNames); ++i) text += "\n  " + lines[i];
  if (lines.size() > kMostNames) text += concat("\n  and ", lines.size() - kMostNames, " more");
  const std::string first = "rank " + std::to_string(first_);
  if (!coordinates)  // a silent coordinator sleeps: it has not submitted these operations itself
    text += "\n  " + first +
            " reports which ranks have not submitted them; if it reports nothing, it has not submitted them itself";
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace ringcomm
