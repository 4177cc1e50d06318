// Named operations that ranks may submit in any order, and plans of a training step. The bindings
// submit them here. engine.cpp documents the protocol.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "engine/operation.hpp"
#include "engine/request.hpp"
#include "engine/worker/service.hpp"
#include "engine/worker/worker.hpp"
#include "shm/processes.hpp"

namespace ringcomm {

struct OperationState;  // a request and its state
class Plan;             // the buckets of a training step
class PlanRun;
class NamedSet;

class Engine {
 public:
  // `transport` is the engine's own; only the worker uses it.
  Engine(std::shared_ptr<Worker> worker, std::shared_ptr<Transport> transport, EngineConfig config);
  ~Engine();  // fails pending operations with Error(shut_down); sends no LEAVE: call leave() for that
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Monitors the processes of this host's ranks. `rank_of`: ranks by process id. If a process ends
  // and its rank has not left, every operation fails with Error(peer_lost). Call it before the
  // first submission.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of);
  // Ranks that a fatal error named.
  std::vector<int> lost() const;

  // Adds a process set; set 0 contains all ranks. All ranks add the same sets in the same order.
  // `slot`: an unused slot of the node. `node` is used if all ranks of the set are on this host.
  // Throws Error(invalid) for invalid ranks, and when message tags run out.
  int add_set(std::vector<int> ranks, std::shared_ptr<Node> node, int slot);
  void remove_set(int set);  // throws Error(invalid) while it has operations in flight or open plans

  // Submits an operation, from any thread. Throws Error(invalid) for a name that is in flight
  // already, Error(shut_down) after leave(). After a fatal error, the returned operation has failed
  // with that error.
  std::shared_ptr<Operation> submit(int set, NamedRequest request);
  // Prepares a request once for many submissions, each with the same or another array. One thread
  // at a time may use `prepared`. If another owner holds it, submit() replaces it by a copy first.
  static std::shared_ptr<OperationState> prepare(NamedRequest request);
  std::shared_ptr<Operation> submit(int set, std::shared_ptr<OperationState>& prepared, void* data);
  // Submits operations that run together, in one agreement.
  std::vector<std::shared_ptr<Operation>> submit_group(int set, std::vector<NamedRequest> requests);
  // Like prepare() and submit() above, for requests that are submitted together. Before each
  // submission, the caller calls renew_group() and then fills in the arrays. Throws Error(invalid)
  // if two requests have the same name.
  static std::vector<std::shared_ptr<OperationState>> prepare_group(std::vector<NamedRequest> requests);
  static void renew_group(std::vector<std::shared_ptr<OperationState>>& prepared);
  void submit_group(int set, const std::vector<std::shared_ptr<OperationState>>& prepared);

  // Declares that this rank submits nothing more to these sets. Until all ranks of a set have
  // joined, this rank takes part in all operations that its other ranks submit. It contributes no
  // rows, or values that leave the result of the other ranks unchanged; an average still divides by
  // the size of the set. If an operation's root has joined, the operation fails on the other ranks
  // with Error(joined). When all have joined, the set's Operation is done; last_joined is equal on
  // all ranks. Until then, submit() on the set throws Error(invalid). join() throws Error(invalid),
  // before it does anything, for a set that this rank has joined, is not in, or has an unfinished
  // plan step of.
  std::vector<std::shared_ptr<Operation>> join(const std::vector<int>& sets);

  // Makes a plan with fixed buckets. `items`: number of items for which each step counts the ranks
  // that have them (Plan::finish). The ranks of a set make and close the same plans in the same
  // order. `slot`: an unused slot of the node. `by_priority`: of the buckets that are ready on
  // all ranks, the first one runs next, and the items are counted as soon as possible. Both can be
  // awaited singly (Plan::part). `overlaps`: buckets run as they fill; else in finish().
  std::shared_ptr<Plan> make_plan(int set, std::string name, std::vector<PlanBucket> buckets, Op op, kernels::Scale pre,
                                  kernels::Scale post, std::size_t items, std::shared_ptr<Node> node, int slot,
                                  std::string algorithm = {}, bool by_priority = false, bool overlaps = true);
  bool has_room_for_plan(int set) const;  // equal on all ranks between two plans

  // Every rank adds the same services in the same order: the k-th services of all ranks exchange
  // messages. Throws Error(shut_down) after leave(), Error(invalid) when tags run out.
  void add_service(std::shared_ptr<Service> service);
  void wake();  // call it when a service has something to send

  void leave();  // informs every rank; pending operations fail here and on peers, with typed errors
  std::vector<std::string> pending() const;

 private:
  friend class Plan;
  struct State;
  std::shared_ptr<State> state_;
};

// The buckets of a training step; used by one thread at a time. A step is begin(), ready() in any
// order, finish(). The next step begins once the Operation is done.
class Plan {
 public:
  Plan(std::shared_ptr<Engine::State> engine, std::shared_ptr<NamedSet> set, std::shared_ptr<PlanRun> run);
  ~Plan();
  // Begins a step, and its agreement if PlanShape::overlaps; otherwise finish() begins the
  // agreement. Throws Error(invalid) while a step is in progress.
  void begin();
  // Returns whether a bucket's stretches (PlanBucket) may be stored separately. If not, they are
  // contiguous, from the address of the first one on.
  bool takes_stretches(std::size_t bucket) const;
  // Sets the address of a stretch, for the step in progress (or else the next one) and later steps.
  // Call it before the bucket is ready. A stretch in the arena of the plan's node that consists of
  // complete cache lines is not copied.
  void place(std::size_t bucket, std::size_t stretch, void* data);
  // Marks a bucket as filled. Begins the step if necessary. `place`: memory location of a bucket on
  // a device.
  void ready(std::size_t bucket, std::shared_ptr<MemoryLocation> place = nullptr);
  // Ends the filling of buckets: remaining buckets run as they are. `present`: for each item,
  // whether this rank had it. Once done, the Operation's counts[i] is the number of ranks that had
  // item i. Fails with Error(mismatch) if plans differ. Throws Error(invalid) if a bucket on a
  // device is not ready.
  std::shared_ptr<Operation> finish(std::vector<std::uint8_t> present);
  bool bucket_done(std::size_t bucket) const;  // in the step begun last; not for a plan by priority
  // Returns an Operation that finishes with a bucket of the step begun last, or for the number of
  // buckets: with the counts of items, which it has. Throws std::out_of_range if the plan is not
  // by priority.
  std::shared_ptr<Operation> part(std::size_t part) const;
  // Returns the residuals of encoders (codecs/feedback.hpp); null if there are none. Throws
  // Error(invalid) while a step is in progress.
  Feedback* feedback();
  void close();  // throws Error(invalid) while a step is in progress

 private:
  void submit();

  std::shared_ptr<Engine::State> engine_;
  std::shared_ptr<NamedSet> set_;
  std::shared_ptr<PlanRun> run_;
};

}  // namespace ringcomm
