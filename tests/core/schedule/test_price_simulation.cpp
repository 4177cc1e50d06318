// Tests the pricer's formula against a simulation of every message, for every algorithm and many
// cuts, on networks limited by messages, bytes or sums.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "check.hpp"
#include "network_simulator.hpp"
#include "schedule/price.hpp"
#include "schedule_simulator.hpp"

using namespace ringcomm;

namespace {

struct Ratios {
  double least = 1e9, most = 0, logarithms = 0;
  int count = 0;
  void add(double ratio) {
    least = std::min(least, ratio);
    most = std::max(most, ratio);
    logarithms += std::log(ratio);
    ++count;
  }
};

Ratios compare(const Algorithm& algorithm, int size, const Network& network) {
  const auto schedules = simulation::all_ranks(algorithm, size);
  const Profile profile = make_profile([&](int rank) { return schedules[simulation::at(rank)]; }, size);
  Ratios ratios;
  for (const double block : {1e3, 6e4}) {
    for (const std::size_t segments : {1, 2, 5, 12}) {
      for (const std::size_t window : {1, 2, 4, 16}) {
        const double whole = block * static_cast<double>(profile.parts * segments);
        const Cut cut{static_cast<std::size_t>(whole) / segments, window};
        const double simulated = simulation::NetworkSimulator(schedules, block, segments, window, network).seconds();
        ratios.add(price(profile, static_cast<std::size_t>(whole), cut, network).seconds / simulated);
      }
    }
  }
  return ratios;
}

}  // namespace

int main() {
  const std::vector<Network> networks{{{1e-4, 8e-8, 1e-5, 0}, {}, 1e-10, 0},
                                      {{2e-5, 8e-10, 1e-6, 0}, {}, 1e-10, 0},
                                      {{5e-6, 1e-10, 5e-7, 0}, {}, 3e-10, 0},
                                      {{1e-6, 1e-9, 0, 0}, {}, 0, 0}};
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == Collective::barrier) continue;
    Ratios all;
    for (const int size : {2, 3, 4, 8, 13}) {
      if (kSanitized && size != 3) continue;
      for (const Network& network : networks) {
        const Ratios some = compare(algorithm, size, network);
        all.least = std::min(all.least, some.least);
        all.most = std::max(all.most, some.most);
        all.logarithms += some.logarithms;
        all.count += some.count;
      }
    }
    const double mean = std::exp(all.logarithms / all.count);
    const std::string name = std::string(name_of(algorithm.collective)) + " " + std::string(algorithm.name);
    std::printf("%-32s price over simulation: %.2f to %.2f, mean %.3f\n", name.c_str(), all.least, all.most, mean);
    // Rounds that do not wait for one another (a chain's blocks, trees of an odd number of ranks)
    // are priced as if they waited.
    const bool chain = algorithm.name == "chain";
    if (kSanitized) continue;
    CHECK(mean > 0.8 && mean < (chain ? 2.0 : 1.25));
    CHECK(all.least > 0.5 && all.most < (chain ? 6.0 : 2.6));
    if (is_scan(algorithm.collective)) CHECK(all.least > 0.65);  // its ranks fall behind one another
    const bool one_peer = algorithm.name == "ring" || algorithm.name == "circulant" || algorithm.name == "pairwise" ||
                          algorithm.name == "bruck" || algorithm.name == "butterfly_halving" ||
                          algorithm.name == "bine_halving";
    if (one_peer) CHECK(mean > 0.93 && mean < 1.07 && all.least > 0.65 && all.most < 1.6);
  }
}
