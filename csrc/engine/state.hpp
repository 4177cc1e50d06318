// The engine at work: a source of the worker. The protocol is told in engine.cpp.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/context.hpp"
#include "engine/engine.hpp"
#include "engine/services.hpp"
#include "engine/set.hpp"
#include "node/processes.hpp"

namespace ringcomm {

struct Engine::State final : public Source {
  State(std::shared_ptr<Worker> the_worker, std::shared_ptr<Transport> transport, EngineConfig config);

  // ---- any thread
  int add_set(std::vector<int> ranks, std::shared_ptr<Node> node, int slot);
  void remove_set(int id);
  std::shared_ptr<NamedSet> find(int id);      // the mutex is held. Throws Error(invalid)
  void check_open(const NamedSet& set) const;  // the mutex is held. Throws what submit() throws for any name
  // Throws as Engine::submit; after a fatal error the operations have failed. Several: all or none.
  void submit(int set, const PendingPtr& request);
  void submit(NamedSet& set, const std::vector<PendingPtr>& requests);
  void leave();
  void close();  // after the worker has let go of this

  // ---- the worker
  Progress turn() override;
  bool moving_data() override;
  bool listens() override { return services.any(); }

  const std::shared_ptr<Worker> worker;
  Context context;
  Services services;
  // Guarded by the context's mutex.
  std::map<int, std::shared_ptr<NamedSet>> sets;
  std::exception_ptr fatal;
  std::vector<int> lost;  // whom it named
  std::shared_ptr<const Processes> processes;
  std::map<int, int> rank_of;  // of the processes, by number

 private:
  enum class Leaving : std::uint8_t { no, asked, withdrawing, saying };

  Progress give_turn();
  bool refresh();  // false: nothing to do
  bool still_busy();
  void handle(int peer, Record&& record);
  void handle_leave(int peer, LeaveRecord&& record);
  NamedSet* live(std::uint32_t id);  // null: removed
  bool not_yet(const Record& record) const;
  void welcome(NamedSet& set);  // a set that is new to the worker
  void look_for_dead();
  void fail(const Error& error) noexcept;
  bool leave_turn(bool moved_data);
  void say_goodbye();

  // Guarded.
  int next_set_ = 0, next_place_ = 0;
  std::uint64_t version_ = 1;  // of `sets`
  bool leaving_ = false;
  Operation left_{"leave"};  // done: no more turns come
  // The worker's.
  std::uint64_t seen_version_ = 0;
  std::map<int, std::shared_ptr<NamedSet>> live_;
  int known_sets_ = 0;                         // sets with lower ids are live, or removed
  std::vector<std::pair<int, Record>> early_;  // of sets that this rank has not added yet
  std::map<int, LeaveRecord> gone_;            // who has left the job
  bool told_ = false;                          // of the fatal error, by a peer: it tells everybody
  std::vector<int> suspects_;                  // ended when last looked at, and had not said that they leave
  std::int64_t looked_ns_ = 0;
  Leaving stage_ = Leaving::no;
  std::int64_t deadline_ns_ = 0;
};

}  // namespace ringcomm
