// The protocol of named operations.
//
// Ranks submit named operations in any order, from any thread. For each set, its first rank (the coordinator) collects
// who has what ready, and answers with verdicts, numbered from 1, which every rank of the set hears in the same order
// and executes in that order, one at a time, on the set's channel. Data and control are two planes; they share a
// transport, not tags.
//
//   READY      rank -> coordinator    names (or cache ids) submitted since the last turn, and verdicts heard
//   VERDICTS   coordinator -> ranks   run these as one bucket; or fail them, and why
//   JOIN       rank -> coordinator    has nothing more to give; counts as ready for everything, until all have joined
//   WITHDRAW   rank -> coordinator    gives up one operation (stalled), lives on
//   GOING      rank -> coordinator    is about to leave: agree on nothing more
//   CONFIRMED  coordinator -> rank    no verdict comes after this
//   LEAVE      rank -> everybody      has executed so many verdicts of each set, steps of each plan; does no more
//   ABORT      rank -> everybody      met a fatal error
//
// Services (engine/service.hpp) share the transport and the worker with that, and none of its tags or agreements.
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
// two ranks keep their order, so by then the leaver has heard every verdict that includes it. It executes these, fails
// the rest with Error(shut_down), and leaves as above. It waits at most 5 s without progress for the confirmation, for
// a coordinator that sleeps does not answer. Then it leaves anyway, and that too is safe: if its operations become
// agreed afterwards, that verdict has a number above the n that LEAVE told, so peers do not begin it or abandon it. Its
// set is of no use to anybody then, so nothing is lost with data that was half moved.
//
// Stalls. After stall_fail_seconds a rank withdraws an operation. If not all ranks had submitted it, the coordinator
// issues a verdict that fails it, also for ranks whose submission is yet to come: they remember, and fail it when it is
// submitted, so that the k-th operation of a name is the same on every rank. A submission that crossed that verdict on
// its way is told from a new one by the number of verdicts that its READY had heard. Without an answer for 5 s the
// operation fails on this rank alone; if it is agreed after all, the rank leaves that set (LEAVE for one set).
// Until the coordinator speaks, a new operation of that name is held back, so that it is not taken for the old one.
//
// Plans. A step is agreed on as one ordinary operation, "plan/<name>". Its buckets run on the plan's own channel, in
// plan order, each as soon as it is filled here. LEAVE counts steps as it counts verdicts.
#include "engine/engine.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/clock.hpp"
#include "engine/plan_run.hpp"
#include "engine/state.hpp"

namespace ringcomm {

namespace {

PendingPtr make_pending(Named&& request) {
  auto pending = std::make_shared<Pending>(request.call.name);
  pending->signature = signature_of(request);
  pending->request = std::move(request);
  pending->submitted_ns = now_ns();
  return pending;
}

// Another like it, which the worker may be using just now.
PendingPtr make_pending(const Pending& like) {
  auto pending = std::make_shared<Pending>(like.name);
  pending->signature = like.signature;
  pending->request = like.request;
  return pending;
}

void require_name(const Pending& pending) {
  if (pending.name.empty()) throw Error(ErrorKind::invalid, "a named operation needs a name");
}

// Its data takes less time than agreement: it is better off together with others.
bool is_small(const Call& call) {
  constexpr std::size_t kSmall = 64 << 10;
  return call.collective == Collective::allreduce && call.count * size_of(call.dtype) <= kSmall;
}

}  // namespace

// ---- the state's side of submission and sets

int Engine::State::add_set(std::vector<int> ranks, std::shared_ptr<Node> node, int slot) {
  const int size = context.transport->size();
  if (ranks.empty()) throw Error(ErrorKind::invalid, "a process set needs at least one rank");
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size || std::count(ranks.begin(), ranks.end(), rank) > 1) {
      throw Error(ErrorKind::invalid, "rank " + std::to_string(rank) + " of a process set is none of 0 .. " +
                                          std::to_string(size - 1) + ", or is in it twice");
    }
  }
  const std::lock_guard lock(context.mutex);
  const int places = context.tags.sets();
  if (static_cast<int>(sets.size()) >= places) {
    throw Error(ErrorKind::invalid, "no more than " + std::to_string(places) + " process sets: message tags run out");
  }
  // The place unused for longest, so that a message that a broken set left behind meets nobody. The same on every rank.
  const auto taken = [&] {
    return std::any_of(sets.begin(), sets.end(), [&](const auto& entry) { return entry.second->place == next_place_; });
  };
  while (taken()) next_place_ = (next_place_ + 1) % places;
  const int id = next_set_;
  sets[id] = std::make_shared<NamedSet>(context, id, next_place_, std::move(ranks), std::move(node), slot);
  next_place_ = (next_place_ + 1) % places;
  ++next_set_;
  ++version_;
  return id;
}

void Engine::State::remove_set(int id) {
  const std::lock_guard lock(context.mutex);
  const std::shared_ptr<NamedSet> set = find(id);
  const bool stepping =
      std::any_of(set->plans.begin(), set->plans.end(), [](const auto& plan) { return plan && plan->stepping(); });
  if (set->in_flight() > 0 || stepping) {
    throw Error(ErrorKind::invalid, "process set " + std::to_string(id) +
                                        " still has operations in flight, or a training step: finish them first");
  }
  sets.erase(id);
  ++version_;
}

std::shared_ptr<NamedSet> Engine::State::find(int id) {
  const auto found = sets.find(id);
  if (found == sets.end()) throw Error(ErrorKind::invalid, "there is no process set " + std::to_string(id));
  return found->second;
}

void Engine::State::check_open(const NamedSet& set) const {
  if (leaving_) throw Error(ErrorKind::shut_down, "ringcomm has been shut down: call init() before further operations");
  const auto found = sets.find(set.id);
  if (found == sets.end() || found->second.get() != &set)
    throw Error(ErrorKind::invalid, "process set " + std::to_string(set.id) + " has been removed");
  if (set.me < 0) {
    throw Error(ErrorKind::invalid,
                "rank " + std::to_string(context.rank()) + " is not in process set " + std::to_string(set.id));
  }
  if (set.joining()) {
    throw Error(ErrorKind::invalid, "this rank has joined: no operation can be submitted until all ranks have");
  }
}

void Engine::State::submit(int set, const PendingPtr& request) {
  std::exception_ptr failed;
  {
    const std::lock_guard lock(context.mutex);
    const std::shared_ptr<NamedSet> target = find(set);
    check_open(*target);
    require_name(*request);
    failed = fatal;
    if (!failed) target->insert(request);
  }
  if (failed) return request->conclude(failed);
  worker->wake(is_small(request->request.call) ? Worker::When::soon : Worker::When::now);
}

void Engine::State::submit(NamedSet& set, const std::vector<PendingPtr>& requests) {
  std::exception_ptr failed;
  {
    const std::lock_guard lock(context.mutex);
    check_open(set);
    std::unordered_set<std::string> names;
    for (const PendingPtr& pending : requests) {
      const std::string& name = pending->name;
      require_name(*pending);
      if (!names.insert(name).second || set.in_flight(name)) {
        throw Error(ErrorKind::invalid,
                    "an operation named '" + name + "' is already in flight: wait for it, or choose another name");
      }
    }
    failed = fatal;
    for (const PendingPtr& pending : requests) {
      if (!failed) set.insert(pending);
    }
  }
  if (!failed) return worker->wake();
  for (const PendingPtr& pending : requests) pending->conclude(failed);
}

// ---- the engine

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
  state_->processes = std::move(processes);
  state_->rank_of = std::move(rank_of);
}

std::vector<int> Engine::lost() const {
  const std::lock_guard lock(state_->context.mutex);
  return state_->lost;
}

int Engine::add_set(std::vector<int> ranks, std::shared_ptr<Node> node, int slot) {
  return state_->add_set(std::move(ranks), std::move(node), slot);
}

void Engine::remove_set(int set) { state_->remove_set(set); }

std::shared_ptr<Operation> Engine::submit(int set, Named request) {
  const PendingPtr pending = make_pending(std::move(request));
  state_->submit(set, pending);
  return pending;
}

std::shared_ptr<Pending> Engine::prepare(Named request) {
  const PendingPtr pending = make_pending(std::move(request));
  pending->submitted_ns = 0;
  return pending;
}

std::shared_ptr<Operation> Engine::submit(int set, PendingPtr& prepared, void* data) {
  const bool under_way = prepared->submitted_ns != 0 && !prepared->done();
  if (under_way || prepared.use_count() > 1) {
    prepared = make_pending(*prepared);
  } else {
    prepared->renew();
  }
  prepared->request.call.input = prepared->request.call.output = data;
  prepared->submitted_ns = now_ns();
  state_->submit(set, prepared);
  return prepared;
}

std::vector<std::shared_ptr<Operation>> Engine::submit_group(int set, std::vector<Named> requests) {
  std::shared_ptr<NamedSet> target;
  {
    const std::lock_guard lock(state_->context.mutex);
    target = state_->find(set);
  }
  Hash names;
  for (const Named& request : requests) names.add(request.call.name);
  std::vector<PendingPtr> pending;
  std::vector<std::shared_ptr<Operation>> operations;
  for (Named& request : requests) {
    pending.push_back(make_pending(std::move(request)));
    operations.push_back(pending.back());
    if (requests.size() == 1) continue;
    pending.back()->group = names.value();
    pending.back()->group_size = static_cast<std::uint32_t>(requests.size());
  }
  if (!pending.empty()) state_->submit(*target, pending);
  return operations;
}

std::vector<std::shared_ptr<Operation>> Engine::join(const std::vector<int>& sets) {
  std::vector<std::shared_ptr<NamedSet>> targets;
  {
    const std::lock_guard lock(state_->context.mutex);
    for (const int set : sets) {
      targets.push_back(state_->find(set));
      state_->check_open(*targets.back());
      for (const auto& plan : targets.back()->plans) {
        if (!plan || !plan->begun()) continue;
        throw Error(ErrorKind::invalid, "a step of '" + plan->name() + "' is under way: finish it before joining");
      }
    }
  }
  std::vector<std::shared_ptr<Operation>> operations;
  for (const auto& target : targets) {
    auto pending = std::make_shared<Pending>("join");
    pending->kind = Pending::Kind::join;
    pending->submitted_ns = now_ns();
    state_->submit(*target, {pending});
    operations.push_back(pending);
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
  for (const auto& [id, set] : state_->sets) set->list(names);
  return names;
}

}  // namespace ringcomm
