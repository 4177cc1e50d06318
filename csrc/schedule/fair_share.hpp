// Shares links among flows max-min fairly (Bertsekas and Gallager, Data Networks, 1992, section
// 6.5.2): no flow's rate can rise without lowering that of a flow that has no more.
#pragma once

#include <cstddef>
#include <vector>

namespace ringcomm {

// The links of each flow, as indices. A flow without links is not limited.
using Routes = std::vector<std::vector<std::size_t>>;

// Returns the rate of each flow, by progressive filling. `costs`: time per unit of each link, so
// its capacity is 1 / cost. Takes O(links of routes) per saturated link.
std::vector<double> fair_rates(const Routes& routes, const std::vector<double>& costs);

// Returns the time until the last of flows with these sizes has ended. Rates change whenever a flow
// ends. If all sizes are equal, this is the largest load x cost of any link: the first link that
// saturates has the lowest rate of all, and its flows end last.
double drain_time(const Routes& routes, std::vector<double> sizes, const std::vector<double>& costs);

}  // namespace ringcomm
