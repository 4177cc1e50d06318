// Implements CallerRun: polls a small call, then waits for it.
#include "collectives/caller_run.hpp"

#include "base/clock.hpp"
#include "collectives/run_call.hpp"
#include "host_collectives/payload.hpp"

namespace ringcomm {
namespace {

constexpr int kPolls = 64;
constexpr std::size_t kBrief = 4096;  // bytes of a call that can be complete within a microsecond

}  // namespace

void Channel::run(Call&& call, bool (*interrupted)()) {
  CallerRun run(*this, call);
  if (!run.poll()) run.finish(interrupted);
}

CallerRun::CallerRun(Channel& channel, Call& call)
    : channel_(channel), collective_(name_of(call.collective)),
      brief_(channel.on_one_host() && channel.context().oversubscribed_calls == 0 && call.nbytes() <= kBrief) {
  const CallContext& context = channel.context();
  if (context.epochs) context.epochs->expect(fits_header(call, channel.size()) ? 0 : call.nbytes());
  if (context.account.timed()) begun_ns_ = now_ns();
  task_ = channel.start_borrowed(call);
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
           for (int looked = 0; progress != Progress::done && looked < kPolls && task_->brief(); ++looked)
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
