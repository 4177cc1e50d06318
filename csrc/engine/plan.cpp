// A plan as its user sees it.
#include <algorithm>

#include "engine/plan_run.hpp"
#include "engine/state.hpp"

namespace ringcomm {

std::shared_ptr<Plan> Engine::make_plan(int set, std::string name, std::vector<PlanBucket> buckets, Op op,
                                        kernels::Scale pre, kernels::Scale post, Wire wire, std::size_t items,
                                        std::shared_ptr<Node> node, int slot, std::string algorithm) {
  Context& context = state_->context;
  const std::lock_guard lock(context.mutex);
  const std::shared_ptr<NamedSet> target = state_->find(set);
  if (target->me < 0) {
    throw Error(ErrorKind::invalid,
                "rank " + std::to_string(context.rank()) + " is not in process set " + std::to_string(set));
  }
  PlanShape shape{"plan/" + name, std::move(buckets), op, pre, post, wire, items, std::move(algorithm)};
  auto& plans = target->plans;
  if (std::any_of(plans.begin(), plans.end(), [&](const auto& plan) { return plan && plan->name() == shape.name; })) {
    throw Error(ErrorKind::invalid, "there is a plan '" + name + "' already");
  }
  // The stream unused for longest; the same on every rank.
  std::size_t stream = target->plans_made % plans.size();
  for (std::size_t tried = 0; plans[stream]; stream = (stream + 1) % plans.size()) {
    if (++tried >= plans.size())
      throw Error(ErrorKind::invalid, "no more than " + std::to_string(plans.size()) + " plans in a process set");
  }
  auto channel = std::make_unique<Channel>(context.transport, target->ranks, target->me,
                                           context.tags.of_plan(target->place, static_cast<int>(stream)),
                                           std::move(node), slot, context.config.channel);
  const auto past = target->past_steps.find(shape.name);
  const std::uint64_t steps = past == target->past_steps.end() ? 0 : past->second;
  plans[stream] = std::make_shared<PlanRun>(context, *target, std::move(shape), static_cast<int>(stream),
                                            std::move(channel), steps);
  if (past != target->past_steps.end()) target->past_steps.erase(past);
  target->plans_made = stream + 1;
  return std::make_shared<Plan>(state_, target, plans[stream]);
}

Plan::Plan(std::shared_ptr<Engine::State> engine, std::shared_ptr<NamedSet> set, std::shared_ptr<PlanRun> run)
    : engine_(std::move(engine)), set_(std::move(set)), run_(std::move(run)) {}

Plan::~Plan() = default;

void Plan::begin() {
  if (run_->stepping()) throw Error(ErrorKind::invalid, "a step of '" + run_->name() + "' is already in flight");
  const PendingPtr step = run_->prepare();
  try {
    engine_->submit(*set_, {step});
  } catch (...) {
    run_->fail_step(std::current_exception());
    throw;
  }
}

void Plan::ready(std::size_t bucket) {
  if (!run_->begun()) begin();
  run_->ready(bucket);
  engine_->worker->wake();
  engine_->worker->help();  // without a thread of its own the worker lives on turns like this one
}

std::shared_ptr<Operation> Plan::finish(std::vector<std::uint8_t> present) {
  if (!run_->begun()) begin();
  const auto step = run_->finish(std::move(present));
  engine_->worker->wake();
  return step;
}

bool Plan::bucket_done(std::size_t bucket) const { return run_->bucket_done(bucket); }

void Plan::close() {
  if (run_->stepping()) {
    throw Error(ErrorKind::invalid, "a step of '" + run_->name() + "' is still in flight");
  }
  const std::lock_guard lock(engine_->context.mutex);
  auto& place = set_->plans[static_cast<std::size_t>(run_->stream())];
  if (place != run_) return;
  set_->past_steps[run_->name()] = run_->steps();
  place.reset();
}

}  // namespace ringcomm
