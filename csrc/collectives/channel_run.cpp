// Runs a channel's calls on the caller's thread until they are complete.
#include "collectives/channel.hpp"

#include <optional>

#include "base/caller_wait.hpp"
#include "base/short_sleeps.hpp"
#include "base/wait.hpp"
#include "collectives/run_call.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

constexpr int kLooks = 64;                      // polls for messages before sleeping
constexpr std::int64_t kYieldOnHost = 300'000;  // ns of yielding in waits for ranks of this host, before sleeping
constexpr std::int64_t kSpinInCrowd = 20'000;   // ns; most waits between two running ranks are shorter
// Calls after which to test again whether this rank has a core to itself.
constexpr int kCrowded = 10'000;

// Returns the wait policy. A poll for messages takes long, and the awaited peer may need this core
// to send them. So yield once after each poll, unless the transport's poll yields itself.
Backoff backoff_for(const CallContext& context) {
  if (!context.on_one_host()) {
    const bool yields = context.transport->yields();
    Backoff backoff(100us, kLooks, yields ? 0 : kLooks, 2);
    yields ? backoff.insist(kYieldBetweenHosts, 0) : backoff.yield_at_once(kYieldBetweenHosts);
    return backoff;
  }
  const bool crowded = context.crowded > 0;
  Backoff backoff(100us, kLooks, crowded ? 0 : kLooks);
  backoff.insist(crowded ? kSpinInCrowd : context.config.spin_ns, crowded ? 0 : kYieldOnHost);
  return backoff;
}

}  // namespace

void run_call(Task& task, CallContext& context, bool (*interrupted)()) {
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
    // Before they make this call, peers may need operations that other threads of this process have
    // begun.
    const bool helped = context.config.help && context.config.help();
    if (!helped) task.nap(longest);
    caller.look(now_ns(), [&] { return context.stalled_in(task.label(), "an ordered call"); });
  });
  if (backoff.lost_core())
    context.crowded = kCrowded;
  else if (context.crowded > 0)
    --context.crowded;
}

void Channel::run(Call&& call, bool (*interrupted)()) {
  if (context_.epochs) context_.epochs->expect();
  const std::int64_t begun = context_.account.timed() ? now_ns() : 0;
  const auto task = start(std::move(call));
  try {
    run_call(*task, context_, interrupted);
    if (begun != 0) count_time(begun);
  } catch (const Error& error) {
    task->abandon();
    if (error.kind() == ErrorKind::interrupted) {
      fail(Error(ErrorKind::transport, "an earlier call on this communicator was interrupted"));
    }
    throw;
  }
}

// Counts the duration of a call, during all of which its caller has waited.
void Channel::count_time(std::int64_t begun) {
  const std::int64_t ns = now_ns() - begun;
  const auto entry = timed_entry();
  entry->add_wait(ns);
  entry->add_time(ns);
}

}  // namespace ringcomm
