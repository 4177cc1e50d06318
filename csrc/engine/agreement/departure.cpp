// Implements Departure: the phases in which a rank leaves the job.
#include "engine/agreement/departure.hpp"

#include <algorithm>

#include "base/clock.hpp"

namespace ringcomm {

namespace {
constexpr std::int64_t kWithdrawal = 5'000'000'000;  // ns that a leaver waits for the coordinator without progress
constexpr std::int64_t kGoodbye = 1'000'000'000;     // ns for sending the LEAVE messages
}  // namespace

bool Departure::turn(const Sets& sets, bool moved_data) {
  const std::int64_t now = now_ns();
  if (phase_ == Phase::requested) {
    for (const auto& [id, set] : sets) set->withdraw();
    context_.control.flush();
    phase_ = Phase::withdrawing;
    moved_data = true;
  }
  if (phase_ == Phase::withdrawing) {
    if (moved_data) deadline_ns_ = now + kWithdrawal;
    const bool quiescent =
        std::all_of(sets.begin(), sets.end(), [](const auto& entry) { return entry.second->quiescent(); });
    if (!quiescent && now < deadline_ns_) return false;
    services_.end(Error(ErrorKind::shut_down, "was in flight at shutdown"));
    send_goodbyes(sets);
    phase_ = Phase::sending_goodbyes;
    deadline_ns_ = now + kGoodbye;
    return true;
  }
  if ((context_.control.sending() || services_.moving()) && now < deadline_ns_) return false;
  context_.control.close();
  services_.close();
  phase_ = Phase::left;
  return true;
}

void Departure::send_goodbyes(const Sets& sets) {
  LeaveRecord record;
  for (const auto& [id, set] : sets) {
    if (set->me >= 0) record.sets.push_back(set->end());
    set->fail(Error(ErrorKind::shut_down, "was in flight at shutdown"));
  }
  context_.control.send_to_all(record, {});
}

}  // namespace ringcomm
