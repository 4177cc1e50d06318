// Shows that the schedules of all ranks together compute what their collective promises, by running them on symbols.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/symbolic_run.hpp"

namespace ringcomm {

struct Proof {
  bool ok = false;
  std::string why;  // when not ok: one sentence with rank, round and block
};

// Checks, for schedules[r] of rank r: the k-th message a -> b pairs with the k-th taken, block for block and of equal
// size; no deadlock even if every send waits for its receive; every block ends as the collective promises, every
// contribution in it exactly once (barrier: at least once); where several ranks compute one value, one operand order;
// and that a declared symmetry, or declared busiest ranks, are true. Only collectives with an operation may reduce;
// alltoall never writes its input. Operand orders that are open are decided: the lowest rank's data comes first.
Proof prove(std::vector<Schedule>& schedules);

// Whether a schedule may carry what an encoder makes that loses something each time, and that may depend on the rank:
// a rank's data is encoded once before it is summed, by its rank, and a sum once, by one rank, so that ranks that shall
// end with equal data do. For schedules that can be proved.
bool encodes_once(const std::vector<Schedule>& schedules);

// For pictures. Throws Error(invalid) for schedules that cannot be run to their end.
History follow(const std::vector<Schedule>& schedules);

}  // namespace ringcomm
