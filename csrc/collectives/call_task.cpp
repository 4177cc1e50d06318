// Implements the phases of a call: choice of the route, consistency check, data movement, and
// bookkeeping.
#include "collectives/call_task.hpp"

#include <algorithm>
#include <optional>

#include "base/clock.hpp"
#include "collectives/adasum.hpp"
#include "collectives/moves.hpp"

namespace ringcomm {

CallTask::CallTask(CallContext& context, Resolver& resolver, ConsistencyCheck* check, Call& call)
    : context_(context), resolver_(resolver), check_(check), call_(call), begun_ns_(trace().enabled() ? now_ns() : 0) {
  label_ = {call_.name.empty() ? name_of(call_.collective) : std::string_view(call_.name), context.me,
            call_.agreed ? 1 : 0, begun_ns_};
}

// Chooses the route and starts the check. Calls that are agreed already need no check between
// hosts. In shared memory they need one, because it waits for the arrival of all ranks.
void CallTask::begin() {
  choice_ = &resolver_.choose(call_);
  if (call_.speculation && !(on_host() && resolver_.choose(*call_.speculation->call).route == Route::shared))
    call_.speculation = nullptr;
  if (choice_->route == Route::local) {
    move_ = move_alone(call_);
    phase_ = Phase::move;
  } else if (on_host() || (!call_.agreed && context_.config.check)) {
    phase_ = Phase::compare;
    check_->begin(call_, on_host() || choice_->route == Route::inline_data);
  } else {
    make_move();
  }
}

// Chooses the route again and moves the data. The consistency check may have found that all blocks
// are even, or that the data could not be sent inline.
void CallTask::make_move() {
  phase_ = Phase::move;
  choice_ = &resolver_.without_inline_data(call_);
  if (choice_->route == Route::two_levels)
    move_ = move_on_two_levels(context_, call_, *choice_);
  else if (choice_->route == Route::adasum)
    move_ = move_adasum(context_, call_);
  else
    move_ = move_by_schedule(context_, call_, resolver_.schedule(call_, *choice_), *choice_);
}

Progress CallTask::advance() {
  try {
    return go_on();
  } catch (const Error& error) {
    context_.end_after(error);
    throw;
  }
}

Progress CallTask::go_on() {
  std::optional<TraceScope> scope;
  if (trace().enabled()) scope.emplace(label_);
  if (phase_ == Phase::begin) {
    begin();
    return Progress::moved;
  }
  if (phase_ == Phase::compare) {
    const Progress progress = check_->advance();
    if (progress != Progress::done) return progress;
    move_ = check_->collect();
    phase_ = Phase::move;
    if (!move_) {
      context_.account.book_comparison();
      make_move();
    }
    return Progress::moved;
  }
  const Progress progress = move_->advance();
  if (progress == Progress::blocked && !on_host()) context_.departures.check();
  if (progress == Progress::done) {
    if (!on_host() && choice_->route != Route::local)
      context_.departures.check_goodbyes();  // a rank may have abandoned this call
    phase_ = Phase::end;
    finish_logical_op(call_, context_.me, context_.size());
    book();
    if (begun_ns_ != 0 && trace().enabled()) record(!looked_);
  }
  looked_ = true;
  return progress;
}

// Books the call, or instead the call that ran within this exchange of counts (speculation).
void CallTask::book() {
  const Call& call = call_.speculation && call_.speculation->right ? *call_.speculation->call : call_;
  context_.book(call.collective, *choice_, call.is_subcall ? 0 : std::max<std::size_t>(1, call.fused_counts.size()));
}

// Records the event. It ends with the wait, if the first poll moved data in shared memory.
void CallTask::record(bool at_once) const {
  const bool small = at_once && on_host() && label_.since_ns > begun_ns_;
  trace().record("run", label_.name, choice_->shown(), begun_ns_, small ? label_.since_ns : now_ns(), call_.nbytes(),
                 label_.rank, label_.thread);
}

void CallTask::abandon() noexcept {
  if (phase_ == Phase::compare) check_->abandon();
  if (phase_ == Phase::move && move_) move_->abandon();
  if (phase_ == Phase::compare || phase_ == Phase::move) context_.book_failure();
  if (phase_ == Phase::move && call_.feedback) call_.feedback->undo(call_.tensor);
  phase_ = Phase::end;
}

void CallTask::nap(std::chrono::nanoseconds longest) {
  if (phase_ == Phase::compare)
    check_->nap(longest);
  else if (phase_ == Phase::move)
    move_->nap(on_host() ? patient(longest) : longest);
  else
    Task::nap(longest);
}

}  // namespace ringcomm
