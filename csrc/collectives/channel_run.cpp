// Runs a channel's calls on the caller's thread until they are complete.
#include "collectives/channel.hpp"

#include <optional>

#include "base/caller_wait.hpp"
#include "base/short_sleeps.hpp"
#include "base/wait.hpp"
#include "collectives/run_call.hpp"
#include "host_collectives/payload.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

constexpr int kLooks = 64;                            // polls that spin, and polls that yield, before sleeping
constexpr std::int64_t kYieldOnHost = 300'000;        // ns of yielding in waits for ranks of this host, before sleeping
constexpr std::int64_t kSpinOversubscribed = 20'000;  // ns; most waits between two running ranks are shorter
constexpr std::size_t kBrief = 4096;                  // bytes of a call that can be complete within a microsecond
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

void Channel::run(Call&& call, bool (*interrupted)()) {
  CallerRun run(*this, std::move(call));
  if (!run.poll()) run.finish(interrupted);
}

CallerRun::CallerRun(Channel& channel, Call&& call)
    : channel_(channel), collective_(name_of(call.collective)),
      brief_(channel.on_one_host() && channel.context().oversubscribed_calls == 0 && call.nbytes() <= kBrief) {
  const CallContext& context = channel.context();
  if (context.epochs) context.epochs->expect(fits_header(call, channel.size()) ? 0 : call.nbytes());
  if (context.account.timed()) begun_ns_ = now_ns();
  task_ = channel.start(std::move(call));
}

template <class F>
bool CallerRun::guarded(F run) {
  try {
    const bool complete = run();
    if (complete && begun_ns_ != 0) count_time();
    return complete;
  } catch (const Error& error) {
    task_->abandon();
    if (error.kind() == ErrorKind::interrupted)
      channel_.fail(Error(ErrorKind::transport, "an earlier call on this communicator was interrupted"));
    throw;
  }
}

bool CallerRun::poll() {
  return brief_ && guarded([&] {
           Progress progress = task_->advance();
           for (int looked = 0; progress != Progress::done && looked < kLooks && task_->brief(); ++looked)
             progress = task_->advance();
           return progress == Progress::done;
         });
}

void CallerRun::finish(bool (*interrupted)()) {
  guarded([&] {
    run_call(*task_, collective_, channel_.context(), interrupted);
    return true;
  });
}

// Counts the duration of the call, during all of which its caller has waited.
void CallerRun::count_time() const {
  const std::int64_t ns = now_ns() - begun_ns_;
  const auto entry = channel_.timed_entry();
  entry->add_wait(ns);
  entry->add_time(ns);
}

}  // namespace ringcomm
