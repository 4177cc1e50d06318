// Proves that the schedules of all ranks together compute the result that their collective
// promises, by running them on symbols. Built-in algorithms are proved in tests, custom algorithms
// before use.
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

// Proves the schedules, where schedules[r] is rank r's. It checks these properties:
//   - The k-th message a -> b pairs with the k-th that b receives from a, block for block and of
//     equal size.
//   - No deadlock occurs, even if every send waits for its receive.
//   - Every block ends as the collective promises, with every contribution exactly once (barrier:
//     at least once).
//   - Ranks that compute the same value use one operand order.
//   - A declared symmetry, declared busiest ranks and a declared lag are true.
//   - Only collectives with an operation reduce; alltoall never writes its input.
//
// If a schedule leaves operand orders open (Step::order_is_open), prove() sets them: the part with
// the lowest rank becomes the first operand.
Proof prove(std::vector<Schedule>& schedules);

// Returns true if a schedule may carry lossy encodings that may depend on the encoding rank. A
// rank's data must be encoded once, by that rank, before it is summed. A sum must be encoded once,
// by one rank, so that ranks that must end with equal data do. Requires schedules that can be
// proved.
bool encodes_once(const std::vector<Schedule>& schedules);

// Records how complete each block is in every round, for pictures. Throws Error(invalid) for
// schedules that cannot run to their end.
History follow(const std::vector<Schedule>& schedules);

}  // namespace ringcomm
