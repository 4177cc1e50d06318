// One process set, as this rank sees it: what is in flight, what has been agreed, and the stream that executes it.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/bucket.hpp"
#include "engine/context.hpp"
#include "engine/coordinator.hpp"
#include "engine/known_names.hpp"
#include "engine/pending.hpp"
#include "engine/signature.hpp"

namespace ringcomm {

// A verdict that is to be executed. One without parts that is no join is only counted.
struct Decided {
  std::vector<Agreed> parts{};
  std::vector<int> absent{};
  int last_joined = -1;  // all have joined: the last of them
};

class NamedSet {
 public:
  // `place`: of its tags. A rank outside the set has it too (so that numbers agree), but submits nothing.
  NamedSet(Context& context, int id, int place, std::vector<int> ranks, std::shared_ptr<Node> node, int slot);

  const int id, place, me;  // me: this rank's place in the set, -1: outside
  const std::vector<int> ranks;
  bool coordinates() const { return me == 0; }

  // ---- any thread, with the context's mutex held
  void insert(PendingPtr pending);           // throws Error(invalid) if its name is in flight
  bool joining() const { return joining_; }  // this rank has joined, and not all have
  bool in_flight(const std::string& name) const { return in_flight_.contains(name); }
  std::size_t in_flight() const { return in_flight_.size(); }
  void list(std::vector<std::string>& names) const;
  std::vector<std::shared_ptr<PlanRun>> plans;  // by stream; null: free
  std::size_t plans_made = 0;
  std::map<std::string, std::uint64_t> past_steps;  // of closed plans, by name

  // ---- the worker
  void take(int rank, ReadyRecord&& record);  // here is the coordinator
  void take(int rank, const WithdrawRecord& record);
  void take_join(int rank);
  void take_going(int rank);
  void take_confirmed() { confirmed_ = true; }
  void hear(VerdictRecord&& record);
  void take_end(int rank, const SetEnd& end);  // a rank does so much, and nothing more

  bool send_ready();  // what was submitted since the last turn; true if anything
  bool decide();
  bool execute();  // true if anything moved. Throws what is fatal
  bool moving() const;

  void check_stall(std::int64_t now);
  void go();             // this rank leaves: withdraw everything
  bool settled() const;  // after go(): nothing that could still complete is under way
  SetEnd end() const;
  // Fails everything, now and later. The text gets the operation's name in front.
  void die(const Error& error);
  void finish(const PendingPtr& pending, std::exception_ptr error);
  void finish(const std::vector<Agreed>& parts, const std::exception_ptr& error);  // the same of many, with one lock
  Error left_error() const;

 private:
  void hear(Verdict&& verdict);
  void hear_failure(Verdict& verdict);
  bool hear_run(Verdict& verdict);
  PendingPtr taking_part(const VerdictItem& item, std::uint32_t id, bool absent);
  const std::string& name_of(const VerdictItem& item, std::uint32_t id) const;
  PendingPtr take_sent(std::uint32_t id);
  std::shared_ptr<PlanRun> plan_of(const Descriptor& signature, const std::string& name) const;
  std::vector<std::shared_ptr<PlanRun>> all_plans() const;
  PendingPtr find(const std::string& name) const;
  void announce(Pending& pending, std::exception_ptr error);
  bool withdraw_from_flight(const PendingPtr& pending);  // the mutex is held; false: it has finished before
  std::vector<PendingPtr> all() const;
  void give_up(const std::string& name, bool absent);
  void release(const std::string& name);
  void tell(std::vector<Verdict>&& verdicts, std::uint64_t first);
  void send_join();
  bool step();  // of the current verdict; true if anything moved
  bool end_join(int last);
  bool answering() const;  // in some plan's step, for ranks that still have data
  void end_current(const std::exception_ptr& error);
  void withdraw(Pending& pending, std::int64_t now);
  void warn(std::vector<PendingPtr> waiting, std::int64_t now);
  Ready ready_of(const PendingPtr& pending);
  std::uint32_t id_of(Pending& pending) const;  // 0: it has none
  int member(int rank) const;

  Context& context_;
  // Guarded by the context's mutex.
  PendingByName in_flight_;
  std::vector<PendingPtr> inbox_;
  bool joining_ = false;
  // The worker's.
  std::optional<Coordinator> coordinator_;
  KnownNames known_;
  std::unordered_map<std::uint32_t, PendingPtr> sent_;  // by id: what waits under it; null: nothing does
  std::unique_ptr<Channel> channel_;
  FusionBuffer buffer_;
  std::uint64_t heard_ = 0, executed_ = 0;  // verdicts
  std::uint64_t told_ = 0;                  // how many of these the coordinator has been told
  bool joined_ = false;                     // the coordinator has been told that this rank gives nothing more
  std::deque<Decided> queue_;               // heard, not yet executed
  std::unique_ptr<Task> task_;              // of current_
  std::optional<Decided> current_;
  std::unordered_map<std::string, std::deque<std::exception_ptr>> doomed_;  // failed before they were submitted here
  std::map<std::string, std::exception_ptr> abandoned_;                     // given up without the coordinator's word
  std::vector<PendingPtr> held_;  // submitted under such a name since; sent once the word has come
  std::uint64_t ends_at_ = std::numeric_limits<std::uint64_t>::max();  // verdicts that every leaver has executed
  std::vector<int> leavers_;
  std::optional<Error> dead_;
  bool going_ = false, confirmed_ = false;
  std::int64_t warned_ns_ = 0;
};

}  // namespace ringcomm
