// Waits on the caller's thread until a call is complete.
#include "collectives/run_call.hpp"

#include <optional>

#include "base/caller_wait.hpp"
#include "base/short_sleeps.hpp"
#include "base/wait.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

constexpr int kLooks = 64;                            // polls that spin, and polls that yield, before sleeping
constexpr std::int64_t kYieldOnHost = 300'000;        // ns of yielding in waits for ranks of this host, before sleeping
constexpr std::int64_t kSpinOversubscribed = 20'000;  // ns; most waits between two running ranks are shorter
// Calls after which to test again whether this rank has a core to itself.
constexpr int kOversubscribedCalls = 10'000;

// Returns the wait policy. A poll for messages takes long, and the awaited peer may need this core
// to send them. So yield once after each poll, unless the transport's poll yields itself.
Backoff backoff_for(const CallContext& context) {
  if (!context.on_one_host()) {
    const bool yields = context.transport->yields();
    Backoff backoff(100us, kLooks, yields ? 0 : kLooks, 2);
    yields ? backoff.insist(kYieldBetweenHosts, 0) : backoff.yield_immediately(kYieldBetweenHosts);
    return backoff;
  }
  const bool oversubscribed = context.oversubscribed_calls > 0;
  Backoff backoff(100us, kLooks, oversubscribed ? 0 : kLooks);
  backoff.insist(oversubscribed ? kSpinOversubscribed : context.config.spin_ns, oversubscribed ? 0 : kYieldOnHost);
  return backoff;
}

}  // namespace

void run_call(Task& task, std::string_view collective, CallContext& context, bool (*interrupted)()) {
  Backoff backoff = backoff_for(context);
  std::optional<ShortSleeps> short_sleeps;
  CallerWait caller(interrupted, context.me, context.config.stall_warn_seconds);
  const auto look = [&] {
    const Progress progress = task.advance();
    if (progress == Progress::moved) caller.moved();
    return progress;
  };
  wait_until(look, backoff, kForEver, [&](std::chrono::nanoseconds longest) {
    if (!context.on_one_host() && !short_sleeps) short_sleeps.emplace();
    // Peers may wait for operations that other threads of this process have begun.
    const bool helped = context.config.help && context.config.help();
    if (!helped) task.nap(longest);
    caller.look(now_ns(), [&] { return context.stalled_in(task.label(), collective); });
  });
  if (backoff.lost_core())
    context.oversubscribed_calls = kOversubscribedCalls;
  else if (context.oversubscribed_calls > 0)
    --context.oversubscribed_calls;
}

}  // namespace ringcomm
