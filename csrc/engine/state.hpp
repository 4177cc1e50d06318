// The engine at work: a source of the worker. The protocol: engine/engine.cpp.
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
  void check_open(const NamedSet& set) const;  // the mutex is held. Throws what submit() throws for any name
  // Throws as Engine::submit; after a fatal error the operations have failed. All or none.
  void submit(int set, std::span<const OperationStatePtr> requests, Worker::When when = Worker::When::now);
  std::shared_ptr<NamedSet> find(int set);
  void leave();
  void close();  // after the worker has let go of this

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
  PeerMonitor monitor;  // once something was submitted, the worker's
  std::exception_ptr fatal;
  std::vector<int> lost;  // whom it named

 private:
  Progress give_turn();
  bool refresh();  // false: nothing to do
  bool still_busy();
  void receive(int peer, Record&& record);
  void receive_leave(int peer, LeaveRecord&& record);
  void welcome(int id);                       // a set that is new to the worker
  void look_around();                         // for the dead, and for what stalls
  Error explained(const Error& error) const;  // by who has died, if MPI has failed for that
  void fail(const Error& error) noexcept;

  bool leaving_ = false;     // guarded
  Operation left_{"leave"};  // done: no more turns come
  // The worker's.
  std::uint64_t seen_version_ = 0;
  Sets live_;
  int known_sets_ = 0;                         // sets with lower ids are live, or removed
  std::vector<std::pair<int, Record>> early_;  // of sets that this rank has not added yet
  std::map<int, LeaveRecord> gone_;            // who has left the job
  Every stall_look_{50'000'000};               // each takes as long as there are operations in flight
  bool reported_ = false;                      // the fatal error, by a peer, which reports it to everybody
  std::optional<Departure> departure_;
};

}  // namespace ringcomm
