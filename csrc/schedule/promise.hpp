// What a collective begins with, and what it promises.
#pragma once

#include <optional>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/symbols.hpp"

namespace ringcomm {

bool has_operation(Collective collective);  // only these may reduce

// What blocks hold before the first round.
Values initial_values(const std::vector<Schedule>& schedules, Symbols& symbols);

// Of a collective without an operation: whose block it is that a block shall hold in the end.
struct Origin {
  int rank, block;
};
std::optional<Origin> promised_origin(const Schedule& schedule, int block);

// 0 to 1: how much of what is promised this value is; of scratch, how much of a sum, or a half without an operation.
double completeness(const Schedule& schedule, int block, Symbols::Id value, Symbols& symbols);

}  // namespace ringcomm
