// Implements the caller's side of a plan: Plan, and the plan functions of Engine.
#include "base/clock.hpp"
#include "base/trace.hpp"
#include "engine/plans/plan_run.hpp"
#include "engine/state.hpp"

namespace ringcomm {
namespace {

void require_rest(const PlanRun& run, const char* still) {
  if (run.input.stepping()) throw invalid("a step of '", run.name(), "' is ", still, " in flight");
}

}  // namespace

std::shared_ptr<Plan> Engine::make_plan(int set, std::string name, std::vector<PlanBucket> buckets, Op op,
                                        kernels::Scale pre, kernels::Scale post, std::size_t items,
                                        std::shared_ptr<Node> node, int slot, std::string algorithm, bool by_priority,
                                        bool overlaps) {
  Context& context = state_->context;
  const std::lock_guard lock(context.mutex);
  const std::shared_ptr<NamedSet> target = state_->sets.find(set);
  if (target->me < 0) throw invalid("rank ", context.rank(), " is not in process set ", set);
  if (by_priority && items == 0) throw invalid("plan '", name, "' by priority needs items");
  PlanShape shape{"plan/" + name, std::move(buckets), op, pre, post, items, std::move(algorithm), by_priority};
  shape.overlaps = overlaps;
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

bool Engine::has_room_for_plan(int set) const {
  const std::lock_guard lock(state_->context.mutex);
  return state_->sets.find(set)->plans.has_room();
}

Plan::Plan(std::shared_ptr<Engine::State> engine, std::shared_ptr<NamedSet> set, std::shared_ptr<PlanRun> run)
    : engine_(std::move(engine)), set_(std::move(set)), run_(std::move(run)) {}

Plan::~Plan() = default;

void Plan::begin() {
  require_rest(*run_, "already");
  PlanInput& input = run_->input;
  for (auto& flag : input.filled) flag.store(0, std::memory_order_relaxed);
  input.done.store(0, std::memory_order_release);
  input.begun = true;
  const OperationStatePtr step = input.step = std::make_shared<OperationState>(run_->name());
  step->signature = run_->signature();
  step->kind = OperationState::Kind::step;
  step->plan = run_;  // until the step has finished
  input.parts.clear();
  if (run_->shape().by_priority) {
    for (std::size_t part = 0; part <= input.buckets.size(); ++part)
      input.parts.push_back(std::make_shared<Operation>(step->name));
  }
  step->parts = input.parts;
  if (run_->shape().overlaps) submit();
}

void Plan::submit() {
  PlanInput& input = run_->input;
  try {
    // Without overlap, the caller waits next, and does the work itself.
    engine_->submit(set_->id, {&input.step, 1}, run_->shape().overlaps ? Worker::When::now : Worker::When::soon);
  } catch (...) {
    input.begun = false;
    input.step->conclude(std::current_exception());
    throw;
  }
}

bool Plan::takes_stretches(std::size_t bucket) const { return run_->input.buckets.at(bucket).scattered; }

void Plan::place(std::size_t bucket, std::size_t stretch, void* data) {
  run_->input.buckets.at(bucket).stretches.at(stretch) = data;
}

void Plan::ready(std::size_t bucket, std::shared_ptr<MemoryLocation> place) {
  PlanInput& input = run_->input;
  if (!input.begun) begin();
  if (bucket >= input.buckets.size())
    throw invalid("'", run_->name(), "' has ", input.buckets.size(), " buckets, but no bucket ", bucket);
  input.buckets[bucket].place = std::move(place);
  if (trace().enabled()) {
    const PlanBucket& filled = run_->shape().buckets[bucket];
    const std::int64_t now = now_ns();
    trace().record("filled", concat(run_->name(), "/", bucket), {}, now, now, filled.count * size_of(filled.dtype),
                   engine_->context.rank(), 0);
  }
  input.filled[bucket].store(1, std::memory_order_release);
  if (!run_->shape().overlaps) return;
  engine_->worker->wake();
  engine_->worker->help();  // without a thread, the worker runs only in turns like this one
}

std::shared_ptr<Operation> Plan::finish(std::vector<std::uint8_t> present) {
  PlanInput& input = run_->input;
  const PlanShape& shape = run_->shape();
  if (!input.begun) begin();
  if (present.size() != shape.items)
    throw invalid("'", shape.name, "' has ", shape.items, " items, but ", present.size(), " flags were given");
  for (std::size_t bucket = 0; bucket < shape.buckets.size(); ++bucket) {
    if (shape.buckets[bucket].on_device && !input.filled[bucket].load(std::memory_order_relaxed))
      throw invalid("'", shape.name, "': bucket ", bucket, " is on a device: call ready() before finish()");
  }
  input.present = std::move(present);
  input.filled.back().store(1, std::memory_order_release);
  input.begun = false;
  shape.overlaps ? engine_->worker->wake() : submit();
  return input.step;
}

bool Plan::bucket_done(std::size_t bucket) const { return bucket < run_->input.done.load(std::memory_order_acquire); }

std::shared_ptr<Operation> Plan::part(std::size_t part) const { return run_->input.parts.at(part); }

Feedback* Plan::feedback() {
  require_rest(*run_, "still");
  return run_->feedback();
}

void Plan::close() {
  require_rest(*run_, "still");
  const std::lock_guard lock(engine_->context.mutex);
  set_->plans.close(*run_);
}

}  // namespace ringcomm
