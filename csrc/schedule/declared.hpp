// Checks the properties that schedules declare about the work of each rank: their symmetry, their
// busiest ranks, and how far ranks fall behind each other. Prices rely on these declarations.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace ringcomm {

// Returns why a declaration is false; empty if all are true.
std::string wrongly_declared(const std::vector<Schedule>& schedules);

}  // namespace ringcomm
