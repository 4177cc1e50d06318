// How a rank leaves. Why this is safe: engine/engine.cpp.
#include <algorithm>

#include "base/clock.hpp"
#include "engine/state.hpp"

namespace ringcomm {

namespace {
constexpr std::int64_t kWithdrawal = 5'000'000'000;  // ns that a leaver waits for the coordinator while nothing moves
constexpr std::int64_t kGoodbye = 1'000'000'000;     // ns for the goodbyes to get out
constexpr double kAtMost = 60;                       // seconds in all, however much still moves
}  // namespace

void Engine::State::leave() {
  {
    const std::lock_guard lock(context.mutex);
    leaving_ = true;
    if (fatal) left_.finish();
  }
  worker->wake();
  wait_for(left_, *worker, kAtMost, nullptr);
  left_.finish();
}

// One turn of leaving; true if it got further.
bool Engine::State::leave_turn(bool moved_data) {
  const std::int64_t now = now_ns();
  if (stage_ == Leaving::asked) {
    for (const auto& [id, set] : live_) set->go();
    context.control.flush();
    stage_ = Leaving::withdrawing;
    deadline_ns_ = now + kWithdrawal;
  }
  if (stage_ == Leaving::withdrawing) {
    if (moved_data) deadline_ns_ = now + kWithdrawal;
    const bool settled =
        std::all_of(live_.begin(), live_.end(), [](const auto& entry) { return entry.second->settled(); });
    if (!settled && now < deadline_ns_) return false;
    services.end(Error(ErrorKind::shut_down, "was in flight at shutdown"));
    say_goodbye();
    stage_ = Leaving::saying;
    deadline_ns_ = now + kGoodbye;
    return true;
  }
  if (stage_ == Leaving::saying && ((!context.control.sending() && !services.moving()) || now >= deadline_ns_)) {
    context.control.close();
    services.close();
    left_.finish();
    return true;
  }
  return false;
}

void Engine::State::say_goodbye() {
  LeaveRecord record;
  for (const auto& [id, set] : live_) {
    if (set->me >= 0) record.sets.push_back(set->end());
    set->die(Error(ErrorKind::shut_down, "was in flight at shutdown"));
  }
  Bytes encoded;
  encode(record, encoded);
  for (int peer = 0; peer < context.transport->size(); ++peer) {
    if (peer == context.rank()) continue;
    try {
      context.control.send(peer, encoded);
      context.control.flush();
    } catch (const Error&) {  // lost: it needs no goodbye
    }
  }
}

void Engine::State::close() {
  {
    const std::lock_guard lock(context.mutex);
    leaving_ = true;
    left_.finish();
    live_ = sets;
  }
  const Error closed(ErrorKind::shut_down, "was in flight when the engine was closed");
  services.end(closed);
  services.close();
  for (const auto& [id, set] : live_) set->die(closed);
  context.control.close();
}

}  // namespace ringcomm
