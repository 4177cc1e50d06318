// The protocol of named operations.
//
// Ranks submit named operations in any order, from any thread. For each set, its first rank (the coordinator) collects
// who has what ready, and answers with verdicts, numbered from 1, which every rank of the set reads in the same order
// and executes in that order, one at a time, on the set's channel. Data and control are two planes; they share a
// transport, not tags.
//
//   READY      rank -> coordinator    names (or cache ids) submitted since the last turn, and verdicts read
//   VERDICTS   coordinator -> ranks   run these as one bucket; or fail them, and why
//   JOIN       rank -> coordinator    has nothing more to give; counts as ready for everything, until all have joined
//   WITHDRAW   rank -> coordinator    gives up one operation (stalled), lives on
//   GOING      rank -> coordinator    is about to leave: agree on nothing more
//   CONFIRMED  coordinator -> rank    no verdict comes after this
//   LEAVE      rank -> everybody      has executed so many verdicts of each set, steps of each plan; does no more
//   ABORT      rank -> everybody      met a fatal error
//
// Services (worker/service.hpp) share the transport and the worker with that, and none of its tags or agreements.
//
// Nothing polls when idle, unless there is a service. A rank takes part (receives, answers) only while something is
// pending on it: before it has submitted, nothing can be agreed that concerns it, for a verdict to run needs every
// rank of the set. What is sent to an idle rank waits in the transport until that rank submits something, and is read
// before it can matter. A coordinator that is idle has not submitted, so nothing can be ready everywhere and nobody is
// kept waiting by its sleep that would not wait anyway. A rank that has joined counts as pending.
//
// Joining. A verdict says which ranks take part without having submitted: they have joined. These find in it all that
// they need to stand in (a signature; of a plan, they have their own), and the others that they give nothing (in shared
// memory nobody reads them; in messages they send the operation's identity, or no rows). Only once all have joined does
// the join end, by a verdict like any other. A rank comes to it when it has executed all before it, also its part of
// plans' steps: for it may leave then, and a rank with nothing in flight leaves at once.
//
// Leaving. A rank with nothing in flight leaves at once: every verdict to run waits for its submission, and all it
// submitted has finished, so it has executed every verdict that is or will be. It tells everybody how many that were,
// n. A receiver may be behind: it goes on to execute n verdicts (the leaver has done its share of them), then fails
// whatever else is pending in sets that contain the leaver, and everything later. It never waits for a verdict that the
// leaver does not know.
//
// A leaver with operations in flight must not just go: one of them may have been agreed already, and its peers would
// wait for its data. It sends GOING; the coordinator ends the set's agreement, and answers CONFIRMED. Messages between
// two ranks keep their order, so by then the leaver has read every verdict that includes it. It executes these, fails
// the rest with Error(shut_down), and leaves as above. It waits at most 5 s without progress for the confirmation, for
// a coordinator that sleeps does not answer. Then it leaves anyway, and that too is safe: if its operations become
// agreed afterwards, that verdict has a number above the n of LEAVE, so peers do not begin it or abandon it. Its
// set is of no use to anybody then, so nothing is lost with data that was half moved.
//
// Stalls. After stall_fail_seconds a rank withdraws an operation. If not all ranks had submitted it, the coordinator
// issues a verdict that fails it, also for ranks whose submission is yet to come: they remember, and fail it when it is
// submitted, so that the k-th operation of a name is the same on every rank. A submission that crossed that verdict on
// its way is told from a new one by the number of verdicts read that its READY says. Without an answer for 5 s the
// operation fails on this rank alone; if it is agreed after all, the rank leaves that set (LEAVE for one set).
// Until the coordinator answers, a new operation of that name is held back, so that it is not taken for the old one.
//
// Plans. A step is agreed on as one ordinary operation, "plan/<name>". Its buckets run on the plan's own channel, in
// plan order, each as soon as it is filled here. LEAVE counts steps as it counts verdicts.
#include "engine/engine.hpp"

#include <string_view>
#include <unordered_set>

#include "engine/agreement/signature.hpp"
#include "engine/plans/plan_run.hpp"
#include "engine/state.hpp"

namespace ringcomm {

namespace {

OperationStatePtr make_pending(NamedRequest&& request) {
  auto pending = std::make_shared<OperationState>(request.call.name);
  pending->signature = signature_of(request);
  pending->request = std::move(request);
  return pending;
}

// Another like it, which the worker may be using just now.
OperationStatePtr make_pending(const OperationState& like) {
  auto pending = std::make_shared<OperationState>(like.name);
  pending->signature = like.signature;
  pending->request = like.request;
  pending->group = like.group;
  pending->group_size = like.group_size;
  return pending;
}

// For another submission: itself, or another like it if somebody uses it.
void make_free(OperationStatePtr& prepared) {
  const bool under_way = prepared->submitted_ns != 0 && !prepared->done();
  if (under_way || prepared.use_count() > 1) {
    prepared = make_pending(*prepared);
  } else {
    prepared->renew();
  }
}

// Where its data takes less time than agreement, it is better off together with others.
Worker::When when_to_look(const Call& call) {
  constexpr std::size_t kSmall = 64 << 10;
  const bool small = call.collective == Collective::allreduce && call.count * size_of(call.dtype) <= kSmall;
  return small ? Worker::When::soon : Worker::When::now;
}

}  // namespace

Engine::Engine(std::shared_ptr<Worker> worker, std::shared_ptr<Transport> transport, EngineConfig config)
    : state_(std::make_shared<State>(std::move(worker), std::move(transport), std::move(config))) {
  state_->worker->add(state_);
}

Engine::~Engine() {
  state_->worker->remove(state_);
  state_->close();
}

void Engine::watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
  const std::lock_guard lock(state_->context.mutex);
  state_->monitor.watch(std::move(processes), std::move(rank_of));
}

std::vector<int> Engine::lost() const {
  const std::lock_guard lock(state_->context.mutex);
  return state_->lost;
}

int Engine::add_set(std::vector<int> ranks, std::shared_ptr<Node> node, int slot) {
  const std::lock_guard lock(state_->context.mutex);
  return state_->sets.add(state_->context, std::move(ranks), std::move(node), slot);
}

void Engine::remove_set(int set) {
  const std::lock_guard lock(state_->context.mutex);
  state_->sets.remove(set);
}

std::shared_ptr<Operation> Engine::submit(int set, NamedRequest request) {
  const OperationStatePtr pending = make_pending(std::move(request));
  state_->submit(set, {&pending, 1}, when_to_look(pending->request.call));
  return pending;
}

std::shared_ptr<OperationState> Engine::prepare(NamedRequest request) { return make_pending(std::move(request)); }

std::shared_ptr<Operation> Engine::submit(int set, OperationStatePtr& prepared, void* data) {
  make_free(prepared);
  prepared->request.call.input = prepared->request.call.output = data;
  state_->submit(set, {&prepared, 1}, when_to_look(prepared->request.call));
  return prepared;
}

std::vector<std::shared_ptr<Operation>> Engine::submit_group(int set, std::vector<NamedRequest> requests) {
  const std::vector<OperationStatePtr> pending = prepare_group(std::move(requests));
  submit_group(set, pending);
  return {pending.begin(), pending.end()};
}

std::vector<OperationStatePtr> Engine::prepare_group(std::vector<NamedRequest> requests) {
  std::unordered_set<std::string_view> different;
  Hash names;
  for (const NamedRequest& request : requests) {
    if (!different.insert(request.call.name).second)
      throw invalid("a group has two operations named '", request.call.name, "'");
    names.add(request.call.name);
  }
  std::vector<OperationStatePtr> prepared;
  for (NamedRequest& request : requests) {
    prepared.push_back(make_pending(std::move(request)));
    if (requests.size() == 1) continue;
    prepared.back()->group = names.value();
    prepared.back()->group_size = static_cast<std::uint32_t>(requests.size());
  }
  return prepared;
}

void Engine::renew_group(std::vector<OperationStatePtr>& prepared) {
  for (OperationStatePtr& one : prepared) make_free(one);
}

void Engine::submit_group(int set, const std::vector<OperationStatePtr>& prepared) {
  state_->submit(set, prepared, prepared.size() == 1 ? when_to_look(prepared[0]->request.call) : Worker::When::now);
}

std::vector<std::shared_ptr<Operation>> Engine::join(const std::vector<int>& sets) {
  {
    const std::lock_guard lock(state_->context.mutex);
    for (const int id : sets) {
      const std::shared_ptr<NamedSet> set = state_->sets.find(id);
      state_->check_open(*set);
      if (const PlanRun* plan = set->plans.begun())
        throw invalid("a step of '", plan->name(), "' is under way: finish it before joining");
    }
  }
  std::vector<std::shared_ptr<Operation>> operations;
  for (const int id : sets) {
    auto pending = std::make_shared<OperationState>("join");
    pending->kind = OperationState::Kind::join;
    operations.push_back(pending);
    state_->submit(id, {&pending, 1});
  }
  return operations;
}

void Engine::add_service(std::shared_ptr<Service> service) {
  state_->services.add(std::move(service));
  state_->worker->wake();
}

void Engine::wake() { state_->worker->wake(); }

void Engine::leave() { state_->leave(); }

std::vector<std::string> Engine::pending() const {
  const std::lock_guard lock(state_->context.mutex);
  std::vector<std::string> names;
  for (const auto& [id, set] : state_->sets.all()) set->in_flight.list(names);
  return names;
}

}  // namespace ringcomm
