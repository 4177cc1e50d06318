// Runs one call of a channel as a task: compares descriptors, then moves the data.
#pragma once

#include <memory>
#include <string_view>

#include "base/trace.hpp"
#include "collectives/consistency/consistency_check.hpp"
#include "collectives/context.hpp"
#include "collectives/resolver.hpp"

namespace ringcomm {

class CallTask : public Task {
 public:
  // `check`: the channel's; null if calls are not compared. `call` outlives the task, which may
  // change it.
  CallTask(CallContext& context, Resolver& resolver, ConsistencyCheck* check, Call& call);
  ~CallTask() override { abandon(); }
  Progress advance() override;
  void abandon() noexcept override;
  void nap(std::chrono::nanoseconds longest) override;
  bool brief() const override {
    if (phase_ == Phase::compare) return check_->brief();
    return phase_ == Phase::move && move_->brief();
  }
  std::string_view label() const override { return label_.name; }

 private:
  enum class Phase { begin, compare, move, end };
  Progress go_on();
  void begin();
  void make_move();  // for data that the consistency check did not send inline
  void record(bool at_once) const;
  void book();
  bool on_host() const { return choice_->route == Route::shared; }

  CallContext& context_;
  Resolver& resolver_;
  ConsistencyCheck* const check_;
  Call& call_;
  Phase phase_ = Phase::begin;
  const Choice* choice_ = nullptr;  // the choice that runs; owned by the resolver
  std::unique_ptr<Task> move_;
  bool looked_ = false;  // the data movement has advanced at least once
  std::int64_t begun_ns_ = 0;
  TraceLabel label_;
};

struct CallOwner {  // a base class, because the call must exist before CallTask refers to it
  Call owned_call;
};

// A task that owns its call.
class OwningCallTask final : private CallOwner, public CallTask {
 public:
  OwningCallTask(CallContext& context, Resolver& resolver, ConsistencyCheck* check, Call&& call)
      : CallOwner{std::move(call)}, CallTask(context, resolver, check, owned_call) {}
};

}  // namespace ringcomm
