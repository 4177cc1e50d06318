// A plan as its user sees it.
#include "engine/plan_run.hpp"
#include "engine/state.hpp"

namespace ringcomm {

std::shared_ptr<Plan> Engine::make_plan(int set, std::string name, std::vector<PlanBucket> buckets, Op op,
                                        kernels::Scale pre, kernels::Scale post, std::size_t items,
                                        std::shared_ptr<Node> node, int slot, std::string algorithm) {
  Context& context = state_->context;
  const std::lock_guard lock(context.mutex);
  const std::shared_ptr<NamedSet> target = state_->sets.find(set);
  if (target->me < 0) throw invalid("rank ", context.rank(), " is not in process set ", set);
  PlanShape shape{"plan/" + name, std::move(buckets), op, pre, post, items, std::move(algorithm)};
  PlanTable& plans = target->plans;
  const std::size_t stream = plans.free_stream(shape.name);
  const std::uint64_t steps = plans.past_steps(shape.name);
  auto channel = std::make_unique<Channel>(context.transport, target->ranks, target->me,
                                           context.tags.of_plan(target->tags, static_cast<int>(stream)),
                                           std::move(node), slot, context.config.channel);
  const auto run = std::make_shared<PlanRun>(target->in_flight, std::move(shape), stream, std::move(channel), steps);
  plans.open(run);
  return std::make_shared<Plan>(state_, target, run);
}

Plan::Plan(std::shared_ptr<Engine::State> engine, std::shared_ptr<NamedSet> set, std::shared_ptr<PlanRun> run)
    : engine_(std::move(engine)), set_(std::move(set)), run_(std::move(run)) {}

Plan::~Plan() = default;

void Plan::begin() {
  if (run_->stepping()) throw invalid("a step of '", run_->name(), "' is already in flight");
  const PendingPtr step = run_->prepare();
  try {
    engine_->submit(set_->id, {&step, 1});
  } catch (...) {
    run_->fail_step(std::current_exception());
    throw;
  }
}

bool Plan::takes_stretches(std::size_t bucket) const { return run_->takes_stretches(bucket); }

void Plan::place(std::size_t bucket, std::size_t stretch, void* data) { run_->place(bucket, stretch, data); }

void Plan::ready(std::size_t bucket, std::shared_ptr<Place> place) {
  if (!run_->begun()) begin();
  run_->ready(bucket, std::move(place));
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

Feedback* Plan::feedback() {
  run_->require_rest();
  return run_->feedback();
}

void Plan::close() {
  run_->require_rest();
  const std::lock_guard lock(engine_->context.mutex);
  set_->plans.close(*run_);
}

}  // namespace ringcomm
