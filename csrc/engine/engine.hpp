// Named operations that ranks may submit in any order, and plans of a training step. See engine.cpp for the protocol.
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

struct OperationState;  // a request and what has become of it
class Plan;             // the buckets of a training step
class PlanRun;
class NamedSet;

class Engine {
 public:
  // The engine's own transport (used by the worker alone). `node` serves sets whose ranks are all on this host.
  Engine(std::shared_ptr<Worker> worker, std::shared_ptr<Transport> transport, EngineConfig config);
  ~Engine();  // what is in flight fails with Error(shut_down); says no goodbye, that is leave()'s
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Ranks of this host are these processes, by number: if one has ended and had not left before, everything fails with
  // Error(peer_lost), whatever it waits for. Before anything is submitted.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of);
  // Whom a fatal error named.
  std::vector<int> lost() const;

  // Process sets: set 0 is everybody. Collective in the sense that all ranks add the same sets in the same order.
  // `slot`: of the node, for nothing else. Throws Error(invalid) for ranks that are none, and when message tags run
  // out.
  int add_set(std::vector<int> ranks, std::shared_ptr<Node> node, int slot);
  void remove_set(int set);  // throws Error(invalid) while operations of it are in flight, or plans open

  // Any thread. Throws Error(invalid) for a name that is in flight already, Error(shut_down) after leave(). After a
  // fatal error, the operation returned has failed with it.
  std::shared_ptr<Operation> submit(int set, NamedRequest request);
  // A request made once and submitted often, each time in place of another array or the same. One thread at a time;
  // `prepared` is used itself while nobody else holds it or its Operation, else replaced by another like it.
  static std::shared_ptr<OperationState> prepare(NamedRequest request);
  std::shared_ptr<Operation> submit(int set, std::shared_ptr<OperationState>& prepared, void* data);
  // All of it runs together, in one agreement.
  std::vector<std::shared_ptr<Operation>> submit_group(int set, std::vector<NamedRequest> requests);
  // Requests made once and submitted together often, as prepare() and submit() above. Their arrays are the caller's to
  // fill in before; renew_group() makes them fit to be touched. Throws Error(invalid) if two have one name.
  static std::vector<std::shared_ptr<OperationState>> prepare_group(std::vector<NamedRequest> requests);
  static void renew_group(std::vector<std::shared_ptr<OperationState>>& prepared);
  void submit_group(int set, const std::vector<std::shared_ptr<OperationState>>& prepared);

  // This rank has nothing more to give to these sets. Until all ranks of a set have joined, it takes part in whatever
  // any of them submits: with no rows, or with values that leave the result of the others as it is (an average still
  // divides by the size of the set); an operation whose root has joined fails on the others with Error(joined). Then
  // the set's Operation is done, and last_joined the same on every rank. Until it is, submit() on the set throws
  // Error(invalid). So does this, before it does anything, for a set that it has joined, is not in, or has begun a
  // plan's step of and not finished.
  std::vector<std::shared_ptr<Operation>> join(const std::vector<int>& sets);

  // A plan: buckets fixed once; `items` flags per step say what a rank had. The ranks of a set make and close the same
  // plans in the same order. `slot`: of the node, for nothing else.
  std::shared_ptr<Plan> make_plan(int set, std::string name, std::vector<PlanBucket> buckets, Op op, kernels::Scale pre,
                                  kernels::Scale post, std::size_t items, std::shared_ptr<Node> node, int slot,
                                  std::string algorithm = {});
  bool has_room_for_plan(int set) const;  // the same on every rank between two plans

  // Every rank adds the same services in the same order: the k-th ones send to each other. Throws Error(shut_down)
  // after leave(), Error(invalid) when tags run out.
  void add_service(std::shared_ptr<Service> service);
  void wake();  // a service has something to send

  void leave();  // says goodbye to every rank: pending operations here and their peers' fail, typed
  std::vector<std::string> pending() const;

 private:
  friend class Plan;
  struct State;
  std::shared_ptr<State> state_;
};

// Used by one thread at a time. A step is begin(), ready() in any order, finish(); the next begins once the Operation
// is done.
class Plan {
 public:
  Plan(std::shared_ptr<Engine::State> engine, std::shared_ptr<NamedSet> set, std::shared_ptr<PlanRun> run);
  ~Plan();
  void begin();  // the step starts here; agreement goes out. Throws Error(invalid) while a step is under way
  // Whether a bucket's stretches may lie anywhere. If not, they lie one behind the other, from where the first does.
  bool takes_stretches(std::size_t bucket) const;
  // Where a stretch lies, from the step begun last, or else the next one, on; before its bucket is ready. In the arena
  // of the plan's node, and long enough for whole cache lines: then it is not copied.
  void place(std::size_t bucket, std::size_t stretch, void* data);
  // Filled: runs after all before it in the plan. Begins the step if need be. `place`: of a bucket on a device.
  void ready(std::size_t bucket, std::shared_ptr<MemoryLocation> place = nullptr);
  // Nothing more will be filled: remaining buckets run as they are. `present`: for each item, whether this rank had
  // it. Once done, the Operation's counts[i] is the number of ranks that had item i; Error(mismatch) if plans differ.
  // Throws Error(invalid) if one on a device is not ready.
  std::shared_ptr<Operation> finish(std::vector<std::uint8_t> present);
  bool bucket_done(std::size_t bucket) const;  // in the step begun last
  // What encoders have held back (codecs/feedback.hpp); null if nothing is. Throws Error(invalid) while a step is under
  // way.
  Feedback* feedback();
  void close();  // throws Error(invalid) while a step is under way

 private:
  std::shared_ptr<Engine::State> engine_;
  std::shared_ptr<NamedSet> set_;
  std::shared_ptr<PlanRun> run_;
};

}  // namespace ringcomm
