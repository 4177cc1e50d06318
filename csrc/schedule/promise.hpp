// Specifies collectives for the prover: the values that blocks hold at the beginning, and the
// values that they must hold at the end.
#pragma once

#include <optional>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/symbols.hpp"

namespace ringcomm {

bool has_operation(Collective collective);  // collectives that may reduce

// Returns the values of all blocks before the first round.
Values initial_values(const std::vector<Schedule>& schedules, Symbols& symbols);

// Rank and block that a block must be equal to at the end, in a collective without an operation.
struct Origin {
  int rank, block;
};
std::optional<Origin> promised_origin(const Schedule& schedule, int block);

// Returns how complete a block's value is, from 0 to 1. In a collective with an operation, this is
// the fraction of the ranks' parts that it contains. In others it is 0 or 1; 0.5 for scratch.
double completeness(const Schedule& schedule, int block, Symbols::Id value, Symbols& symbols);

}  // namespace ringcomm
