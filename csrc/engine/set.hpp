// One process set, as this rank sees it: its parts, and how it ends.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "engine/agreement/coordinator_side.hpp"
#include "engine/agreement/member_side.hpp"
#include "engine/agreement/stall_watch.hpp"
#include "engine/executor.hpp"
#include "engine/in_flight.hpp"
#include "engine/plans/plan_table.hpp"

namespace ringcomm {

class NamedSet {
 public:
  // `tags`: its slot of the tag space. `slot`: of the node. A rank outside the set has it too (so that numbers agree),
  // but submits nothing.
  NamedSet(Context& context, int id, int tags, std::vector<int> ranks, std::shared_ptr<Node> node, int slot);

  const int id, tags, me;  // me: this rank's index in the set, -1: outside
  const std::vector<int> ranks;

  // ---- any thread, with the context's mutex held; their other halves are the worker's
  InFlight in_flight;
  PlanTable plans;

  // ---- the worker
  void receive(int rank, Record&& record);        // of this set
  void receive_end(int rank, const SetEnd& end);  // a rank does so much, and nothing more
  bool send_ready();                              // what was submitted since the last turn; true if anything
  bool decide();
  bool execute();  // true if anything moved. Throws what is fatal
  bool moving() const { return executor_.moving() || plans.moving(); }
  bool far() const { return executor_.far(); }
  void check_stall(std::int64_t now);

  void withdraw();       // this rank leaves
  bool settled() const;  // after that: nothing that could still complete is under way
  SetEnd end() const;
  void fail(const Error& error);  // everything, now and later. The text gets the operation's name in front

 private:
  bool coordinates() const { return me == 0; }
  int member(int rank) const;  // its index
  void to_coordinator(Record&& record);
  void receive_going(int rank);
  void read(VerdictRecord&& record);
  void break_off(const Error& error);
  Error left_error() const;

  Context& context_;
  std::optional<CoordinatorSide> coordinator_;
  Executor executor_;
  MemberSide member_;
  StallWatch stall_;
  std::uint64_t ends_at_ = std::numeric_limits<std::uint64_t>::max();  // verdicts that every leaver has executed
  std::vector<int> leavers_;
  std::optional<Error> failed_;
  bool withdrawn_ = false, confirmed_ = false;
};

}  // namespace ringcomm
