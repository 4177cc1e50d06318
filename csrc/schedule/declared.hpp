// What schedules declare of how much each rank does, which prices rely on: their symmetry, their busiest ranks,
// how far they fall behind one another.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace ringcomm {

// Why what they declare is not so; empty if it is.
std::string wrongly_declared(const std::vector<Schedule>& schedules);

}  // namespace ringcomm
