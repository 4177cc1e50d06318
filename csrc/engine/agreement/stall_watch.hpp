// Detects operations that wait too long for other ranks: each rank warns, and finally withdraws, by
// its own clock. The worker uses it through NamedSet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/agreement/coordinator_side.hpp"
#include "engine/agreement/member_side.hpp"

namespace ringcomm {

class StallWatch {
 public:
  // `first`: the coordinator's rank.
  StallWatch(const Context& context, int set, int first, InFlight& in_flight);
  // Checks pending operations, and warns. Returns the withdrawals to send to the coordinator, which
  // fails these operations on all ranks. `coordinator` is null unless this rank coordinates.
  std::vector<WithdrawRecord> check(std::int64_t now, MemberSide& member, const CoordinatorSide* coordinator);
  // Returns true, at most once per warning period, if this rank's callers are blocked in this set:
  // a caller waits, all operations have waited for other ranks for two periods, and none is in
  // flight in other sets.
  bool blocked(std::int64_t now);

 private:
  std::vector<std::string> own_lines(std::int64_t now) const;
  void give_up(const OperationStatePtr& pending, std::int64_t now, MemberSide& member,
               std::vector<WithdrawRecord>& records);
  void warn(const std::vector<std::string>& lines, bool coordinates) const;

  const Context& context_;
  const int set_, first_;
  InFlight& in_flight_;
  const std::int64_t warn_after_, fail_after_;  // ns; 0: never
  std::int64_t warned_ns_ = 0, blocked_ns_ = 0;
};

}  // namespace ringcomm
