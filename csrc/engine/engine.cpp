// Implements Engine, and documents the protocol of named operations.
//
// Ranks submit named operations in any order, from any thread. Each set has a coordinator, its
// first rank. The coordinator collects which rank is ready for which operation. It answers with
// verdicts, numbered from 1. Every rank of the set reads the verdicts in the same order. It
// executes them in that order, one at a time, on the set's channel. Data and control messages share
// a transport, but use different tags.
//
//   READY      rank -> coordinator    new submissions (names or cache ids), and verdicts read
//   VERDICTS   coordinator -> ranks   operations to run as one bucket; or to fail, with the reason
//   JOIN       rank -> coordinator    submits nothing more; ready for all until all have joined
//   WITHDRAW   rank -> coordinator    withdraws one stalled operation, and continues
//   LEAVING    rank -> coordinator    wants to leave: agree on nothing more
//   CONFIRMED  coordinator -> rank    no verdict follows
//   LEAVE      rank -> all ranks      verdicts executed per set, steps per plan; executes no more
//   ABORT      rank -> all ranks      met a fatal error
//
// Services (worker/service.hpp) use the same transport and worker, but other tags and no agreement.
//
// The engine does not poll when idle, unless there is a service. A rank receives and answers only
// while it has a pending operation. Until it submits, no verdict that concerns it can run, because
// a verdict needs every rank of the set. Messages to an idle rank wait in the transport until that
// rank submits an operation, and it reads them before they matter. An idle coordinator has
// submitted nothing, so no operation can be ready on all ranks. Its sleep therefore delays no rank.
// A rank that has joined counts as pending.
//
// Joining. A verdict names the ranks that take part without having submitted, because they have
// joined. For these the verdict contains all that they need for a placeholder: a signature. Plans
// are known to them already. The other ranks learn that these ranks contribute nothing: no rank
// reads their shared memory, and in messages they send the operation's identity, or no rows. The
// join ends only once all ranks have joined, by an ordinary verdict. A rank ends its join after it
// has executed all earlier verdicts and its part of plans' steps. It may leave then, and a rank
// with nothing in flight leaves immediately.
//
// Leaving. A rank with nothing in flight leaves immediately. Every verdict to run waits for its
// submission, and all its submissions have finished, so it has executed every verdict that exists
// or will exist. It sends every rank the number n of these verdicts. A receiver may be behind: it
// still executes n verdicts, because the leaver has done its share. Then it fails all other pending
// operations in sets that contain the leaver, and all later ones. It never waits for a verdict that
// the leaver has not executed.
//
// A leaver with operations in flight cannot leave without notice: one of them may have been agreed
// already, and its peers would wait for its data. It sends LEAVING; the coordinator ends the set's
// agreement, and answers CONFIRMED. Messages between two ranks keep their order, so by then the
// leaver has read every verdict that includes it. It executes these, fails the rest with
// Error(shut_down), and leaves as above. It waits at most 5 s without progress for the
// confirmation, because a sleeping coordinator does not answer. Then it leaves anyway, and that is
// safe too. If its operations are agreed afterwards, that verdict has a number above the n of
// LEAVE. Peers then do not begin it, or abandon it. The set is unusable by then, so partially moved
// data does no harm.
//
// Stalls. After stall_fail_seconds a rank withdraws an operation. If not all ranks had submitted
// it, the coordinator issues a verdict that fails it. Ranks that have not submitted it yet record
// the verdict, and fail the operation on submission. Thus the k-th operation of a name is the same
// on every rank. A submission may be in transit when that verdict is issued. Its READY contains the
// number of verdicts read, which distinguishes it from a new submission. Without an answer for 5 s,
// the operation fails on this rank alone. If it is agreed after all, the rank leaves that set
// (LEAVE for one set). Until the coordinator answers, a new operation of that name is delayed, so
// that it is not mistaken for the old one.
//
// Plans. A step is agreed on as one ordinary operation, "plan/<name>". Its buckets run on the
// plan's own channel, in plan order, each as soon as this rank has filled it. LEAVE counts steps as
// it counts verdicts.
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

// Returns a copy of `like`, which the worker may be using at this moment.
OperationStatePtr make_pending(const OperationState& like) {
  auto pending = std::make_shared<OperationState>(like.name);
  pending->signature = like.signature;
  pending->request = like.request;
  pending->group = like.group;
  pending->group_size = like.group_size;
  return pending;
}

// Makes `prepared` ready for another submission: resets it, or replaces it by a copy if it is in
// use.
void make_free(OperationStatePtr& prepared) {
  const bool is_in_flight = prepared->submitted_ns != 0 && !prepared->done();
  if (is_in_flight || prepared.use_count() > 1) {
    prepared = make_pending(*prepared);
  } else {
    prepared->renew();
  }
}

// Agreement on a small operation takes longer than the transfer of its data. So the worker waits a
// little for other small operations, which are agreed on together and fused.
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
  for (OperationStatePtr& operation : prepared) make_free(operation);
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
        throw invalid("a step of '", plan->name(), "' is in progress: finish it before join()");
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
