// One process set, as this rank sees it: it connects coordinator, member side, executor and plans,
// and handles the end of the set. Engine::State gives it turns.
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
  // `tags`: the set's slot of the tag space. `slot`: slot of the node. A rank outside the set has
  // an instance too, so that ids agree, but submits nothing.
  NamedSet(Context& context, int id, int tags, std::vector<int> ranks, std::shared_ptr<Node> node, int slot);

  const int id, tags, me;  // me: this rank's index in the set; -1: outside
  const std::vector<int> ranks;

  // ---- with functions for any thread (the context's mutex is held), and for the worker
  InFlight in_flight;
  PlanTable plans;
  bool awake = false;  // see SetTable::wake()

  // ---- the worker
  void receive(int rank, Record&& record);        // handles a record of this set
  void receive_end(int rank, const SetEnd& end);  // a rank executes `end.executed` verdicts, and no more
  bool send_ready();                              // sends submissions since the last turn; true if any
  // `limit`: as in Rows::take_due(). True if anything was decided.
  bool decide(std::size_t limit);
  // Bytes of operations with priorities that may be decided now. Few are decided ahead of their
  // execution, because an operation of higher priority may become ready meanwhile.
  std::size_t credit() const { return executor_.waits() ? 0 : kCredit; }
  bool execute();  // true if anything moved. Throws fatal errors
  bool moving() const { return executor_.moving() || plans.moving(); }
  bool far() const { return executor_.far(); }
  bool rests() const { return in_flight.empty() && plans.empty() && executor_.idle(); }  // the mutex is held
  void check_stall(std::int64_t now);

  void withdraw();         // this rank leaves
  bool quiescent() const;  // after withdraw(): no operation can still complete
  SetEnd end() const;
  // fails all operations, current and later; prefixes the text with the operation's name
  void fail(const Error& error);

 private:
  static constexpr std::size_t kCredit = 4 << 20;

  bool coordinates() const { return me == 0; }
  int member(int rank) const;  // the index of `rank`
  void to_coordinator(Record&& record);
  void receive_leaving(int rank);
  void read(VerdictRecord&& record);
  void fail_all(const Error& error);
  Error left_error() const;

  Context& context_;
  std::optional<CoordinatorSide> coordinator_;
  Executor executor_;
  MemberSide member_;
  StallWatch stall_;
  // number of verdicts that every leaver has executed
  std::uint64_t ends_at_ = std::numeric_limits<std::uint64_t>::max();
  std::vector<int> leavers_;
  std::optional<Error> failed_;
  bool withdrawn_ = false, confirmed_ = false;
};

}  // namespace ringcomm
