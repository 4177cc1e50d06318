// Implements progressive filling, and the time in which flows of different sizes end.
#include "schedule/fair_share.hpp"

#include <algorithm>
#include <limits>

namespace ringcomm {
namespace {

// Sets the rates of the flows that are `active`.
void fill(const Routes& routes, const std::vector<double>& costs, std::vector<bool> active,
          std::vector<double>& rates) {
  std::vector<double> left(costs.size());   // capacity that no fixed rate uses
  std::vector<int> flows(costs.size(), 0);  // flows of the link without a fixed rate
  std::vector<std::size_t> used;
  for (std::size_t link = 0; link < costs.size(); ++link) left[link] = 1 / costs[link];
  for (std::size_t flow = 0; flow < routes.size(); ++flow) {
    if (!active[flow]) continue;
    rates[flow] = std::numeric_limits<double>::infinity();
    for (const std::size_t link : routes[flow]) {
      if (flows[link]++ == 0) used.push_back(link);
    }
  }
  while (true) {
    std::size_t tightest = costs.size();
    double share = std::numeric_limits<double>::infinity();
    for (const std::size_t link : used) {
      if (flows[link] == 0 || left[link] / flows[link] >= share) continue;
      tightest = link;
      share = left[link] / flows[link];
    }
    if (tightest == costs.size()) return;
    for (std::size_t flow = 0; flow < routes.size(); ++flow) {
      if (!active[flow] || std::ranges::find(routes[flow], tightest) == routes[flow].end()) continue;
      rates[flow] = share;
      active[flow] = false;
      for (const std::size_t link : routes[flow]) {
        left[link] = std::max(0.0, left[link] - share);
        --flows[link];
      }
    }
  }
}

}  // namespace

std::vector<double> fair_rates(const Routes& routes, const std::vector<double>& costs) {
  std::vector<double> rates(routes.size());
  fill(routes, costs, std::vector<bool>(routes.size(), true), rates);
  return rates;
}

double drain_time(const Routes& routes, std::vector<double> sizes, const std::vector<double>& costs) {
  constexpr double kRounding = 1e-9;  // relative: flows that end together, but for rounding
  std::vector<bool> active(routes.size());
  std::vector<double> rates(routes.size());
  double time = 0;
  while (true) {
    bool any = false;
    for (std::size_t flow = 0; flow < routes.size(); ++flow) {
      active[flow] = sizes[flow] > 0 && !routes[flow].empty();
      any |= active[flow];
    }
    if (!any) return time;
    fill(routes, costs, active, rates);
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t flow = 0; flow < routes.size(); ++flow) {
      if (active[flow]) step = std::min(step, sizes[flow] / rates[flow]);
    }
    time += step;
    for (std::size_t flow = 0; flow < routes.size(); ++flow) {
      if (!active[flow]) continue;
      sizes[flow] = sizes[flow] / rates[flow] <= step * (1 + kRounding) ? 0 : sizes[flow] - step * rates[flow];
    }
  }
}

}  // namespace ringcomm
