// The state of a running engine, which is a source of the worker. engine/engine.cpp documents the
// protocol.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/agreement/departure.hpp"
#include "engine/engine.hpp"
#include "shm/peer_monitor.hpp"

namespace ringcomm {

struct Engine::State final : public Source {
  State(std::shared_ptr<Worker> the_worker, std::shared_ptr<Transport> transport, EngineConfig config);

  // ---- any thread
  // the mutex is held. Throws the errors of submit() that do not depend on the name
  void check_open(const NamedSet& set) const;
  // Submits all operations or none. Throws as Engine::submit; after a fatal error the operations
  // have failed.
  void submit(int set, std::span<const OperationStatePtr> requests, Worker::When when = Worker::When::now);
  std::shared_ptr<NamedSet> find(int set);
  void leave();
  void close();  // after the worker has removed this source

  // ---- the worker
  Progress turn() override;
  bool moving_data() override;
  bool listens() override { return services.listens(); }
  bool far() override;

  const std::shared_ptr<Worker> worker;
  Context context;
  Services services;
  // Guarded by the context's mutex.
  SetTable sets;
  PeerMonitor monitor;  // used by the worker once an operation was submitted
  std::exception_ptr fatal;
  std::vector<int> lost;  // ranks that `fatal` named

 private:
  Progress give_turn();
  bool refresh();                                         // false: nothing to do
  void give_turns(const std::shared_ptr<NamedSet>& set);  // from the next turn on, until it rests
  bool still_busy();
  void receive(int peer, Record&& record);
  void receive_leave(int peer, LeaveRecord&& record);
  void welcome(int id);                       // processes a set that is new to the worker
  void look_around();                         // detects dead ranks and stalled operations
  Error explained(const Error& error) const;  // names the dead ranks if MPI failed because of them
  void fail(const Error& error) noexcept;

  bool leaving_ = false;     // guarded
  Operation left_{"leave"};  // done: no more turns follow
  // Used by the worker.
  std::uint64_t seen_version_ = 0;
  Sets live_;
  std::vector<std::shared_ptr<NamedSet>> awake_;  // those of `live_` that do not rest; the others get no turns
  int known_sets_ = 0;                            // sets with lower ids are live, or removed
  std::vector<std::pair<int, Record>> early_;     // records of sets that this rank has not added yet
  std::map<int, LeaveRecord> departed_;           // ranks that have left the job
  Every stall_look_{50'000'000};                  // the cost of a look is proportional to the operations in flight
  bool reported_ = false;                         // a peer reported the fatal error, and sends it to all ranks
  std::optional<Departure> departure_;
};

}  // namespace ringcomm
