// Tests topologies, max-min fair shares, and prices with contention: the shares' invariants on
// random networks, loads that are counted against flows that are simulated, and prices without
// contention against those without a topology.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "check.hpp"
#include "random.hpp"
#include "schedule/contention.hpp"
#include "schedule/fair_share.hpp"
#include "schedule/price.hpp"
#include "schedule_simulator.hpp"

using namespace ringcomm;
using simulation::at;

namespace {

constexpr double kRounding = 1e-9;
const Network kNetwork{{1e-5, 1e-9, 2e-6, 0}, {1e-6, 1e-10, 1e-6, 0}, 1e-10, 1e-10};
const double kWithin = kNetwork.within.beta / kNetwork.between.beta;

bool near(double a, double b, double part = kRounding) {
  return std::abs(a - b) <= part * std::max(std::abs(a), std::abs(b));
}

struct Case {
  Routes routes;
  std::vector<double> costs, sizes;
};

Case random_case(Random& random) {
  Case it;
  const std::size_t links = 1 + below(random, 8), flows = 1 + below(random, 20);
  for (std::size_t k = 0; k < links; ++k) it.costs.push_back(0.1 * static_cast<double>(1 + below(random, 30)));
  for (std::size_t k = 0; k < flows; ++k) {
    std::set<std::size_t> route{below(random, links)};
    while (below(random, 2) == 0) route.insert(below(random, links));
    it.routes.emplace_back(route.begin(), route.end());
    it.sizes.push_back(static_cast<double>(1 + below(random, 100)));
  }
  return it;
}

std::vector<double> loads_of(const Case& it, const std::vector<double>& flows) {
  std::vector<double> loads(it.costs.size());
  for (std::size_t k = 0; k < flows.size(); ++k) {
    for (const std::size_t link : it.routes[k]) loads[link] += flows[k] * it.costs[link];
  }
  return loads;
}

// Checks that no link carries more than its capacity, and that each flow has a full link on which
// no flow is faster. That defines max-min fairness.
void shares_are_fair() {
  Random random(1);
  for (int turn = 0; turn < 500; ++turn) {
    const Case it = random_case(random);
    const std::vector<double> rates = fair_rates(it.routes, it.costs), loads = loads_of(it, rates);
    CHECK(std::ranges::all_of(loads, [](double load) { return load <= 1 + kRounding; }));
    std::vector<double> fastest(it.costs.size());
    for (std::size_t k = 0; k < rates.size(); ++k) {
      for (const std::size_t link : it.routes[k]) fastest[link] = std::max(fastest[link], rates[k]);
    }
    for (std::size_t k = 0; k < rates.size(); ++k) {
      CHECK(std::ranges::any_of(it.routes[k], [&](std::size_t link) {
        return near(loads[link], 1) && rates[k] >= fastest[link] * (1 - kRounding);
      }));
    }
  }
}

// Checks that flows drain no sooner than the busiest link permits, and no later than one by one;
// that equal flows take exactly the busiest link's time; and that slower links never help.
void flows_drain() {
  Random random(2);
  for (int turn = 0; turn < 300; ++turn) {
    Case it = random_case(random);
    const double time = drain_time(it.routes, it.sizes, it.costs);
    CHECK(time >= std::ranges::max(loads_of(it, it.sizes)) * (1 - kRounding));
    double in_turn = 0;
    for (std::size_t k = 0; k < it.sizes.size(); ++k) {
      Case one{{it.routes[k]}, it.costs, {it.sizes[k]}};
      in_turn += std::ranges::max(loads_of(one, one.sizes));
    }
    CHECK(time <= in_turn * (1 + kRounding));
    std::ranges::fill(it.sizes, 7.0);
    CHECK(near(drain_time(it.routes, it.sizes, it.costs), std::ranges::max(loads_of(it, it.sizes))));
  }
}

std::vector<std::shared_ptr<Topology>> topologies(int hosts) {
  std::vector<std::shared_ptr<Topology>> all{
      make_fat_tree(hosts, 4, 4),    make_fat_tree(hosts, 3, 1.5),   make_rails(hosts, 2, 0), make_rails(hosts, 3, 2),
      make_torus({hosts / 4, 2, 2}), make_torus({hosts / 6 + 1, 6}), make_torus({hosts})};
  std::vector<GraphLink> ring;  // in both directions, with a shortcut
  for (int host = 0; host < hosts; ++host) {
    ring.push_back({host, (host + 1) % hosts, 1, 0});
    ring.push_back({(host + 1) % hosts, host, 2, 0});
  }
  ring.push_back({0, hosts / 2, 0.5, 1});
  all.push_back(make_graph(hosts, hosts, ring, {"ring", "shortcut"}));
  for (const auto& topology : all) topology->hop = 1e-7;
  return all;
}

// Checks that routes are connected: each link is in at most one place, and ends differ.
void routes_are_simple() {
  for (const auto& topology : topologies(12)) {
    for (int from = 0; from < 12; ++from) {
      for (int to = 0; to < 12; ++to) {
        if (from == to) continue;
        std::vector<int> links;
        topology->route({from, 1}, {to, 2}, links);
        CHECK(links.size() >= topology->shortest());
        CHECK(std::set<int>(links.begin(), links.end()).size() == links.size());
      }
    }
  }
  const auto torus = make_torus({4, 6});
  std::vector<int> links;
  torus->route({0, 0}, {2 * 6 + 3, 0}, links);
  CHECK(links.size() == 5);  // half-way around both rings
}

// Checks the closed form of an exchange between all ranks against counted messages.
void exchanges_are_counted() {
  for (const int hosts : {4, 8, 12, 16}) {
    for (const auto& topology : topologies(hosts)) {
      const std::vector<int> ranks(at(topology->hosts()), 3);
      std::size_t longest = 0;
      std::vector<double> loads(topology->links().size()), counted(loads.size());
      const std::size_t known = topology->add_exchange(ranks, loads);
      if (known == 0) continue;
      std::vector<int> route;
      for (int from = 0; from < 3 * topology->hosts(); ++from) {
        for (int to = 0; to < 3 * topology->hosts(); ++to) {
          if (from / 3 == to / 3) continue;
          route.clear();
          topology->route({from / 3, from % 3}, {to / 3, to % 3}, route);
          for (const int link : route) ++counted[at(link)];
          longest = std::max(longest, route.size());
        }
      }
      CHECK(loads == counted && known == longest);
    }
  }
}

Profile contended(const Algorithm& algorithm, int p, const Topology& topology, const Placement& hosts,
                  bool symmetric = true) {
  const auto make = [&](int rank) {
    Schedule s = algorithm.make(rank, p, 0);
    if (!symmetric) s.symmetry = Symmetry::none;
    return s;
  };
  Profile profile = make_profile([&](int rank) { return algorithm.make(rank, p, 0); }, p, hosts);
  CHECK(add_contention(profile, make, topology, hosts, kWithin));
  return profile;
}

// Checks that a declared symmetry gives the times that the messages of all ranks give.
void symmetry_counts_all() {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int p : {8, 12, 24}) {
      for (const auto& topology : topologies(12)) {
        Placement hosts;
        for (int rank = 0; rank < p; ++rank) hosts.push_back(p == 24 ? rank % 12 : rank);
        const Profile few = contended(algorithm, p, *topology, hosts);
        const Profile all = contended(algorithm, p, *topology, hosts, false);
        const double one = price(few, 1 << 20, {0, 1}, kNetwork).seconds;
        CHECK(near(one, price(all, 1 << 20, {0, 1}, kNetwork).seconds));
      }
    }
  }
}

// Checks that a fat tree without oversubscription costs what separate links cost: exactly in one
// piece, but for ranks that reduce while others transfer; and that less capacity never costs less.
void full_bisection_is_free() {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int p : {2, 3, 8, 13, 16, 32}) {
      const Profile plain = make_profile([&](int rank) { return algorithm.make(rank, p, 0); }, p);
      double before = 0;
      for (const double over : {1.0, 1.5, 4.0, 16.0}) {
        const Profile shared = contended(algorithm, p, *make_fat_tree(p, 4, over), {});
        for (const Cut& cut : {Cut{0, 1}, Cut{1 << 16, 4}}) {
          const double seconds = price(shared, 1 << 20, cut, kNetwork).seconds;
          if (over == 1.0) CHECK(near(seconds, price(plain, 1 << 20, cut, kNetwork).seconds, cut.segment ? 0.1 : 0.01));
        }
        const double now = price(shared, 1 << 20, {0, 1}, kNetwork).seconds;
        CHECK(now >= before * (1 - kRounding));
        before = now;
      }
    }
  }
}

// Checks a bound: in an all-reduce each rack of R hosts receives at least one buffer.
void nothing_beats_the_uplink() {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != Collective::allreduce) continue;
    for (const int p : {8, 12, 16, 64}) {
      const Profile profile = contended(algorithm, p, *make_fat_tree(p, 4, 8), {});
      const Priced best = cheapest(profile, 1 << 24, kNetwork);
      CHECK(best.price.seconds >= (1 << 24) * kNetwork.between.beta * 8 / 4);
    }
  }
}

// Checks that hops of a nanosecond cost nanoseconds, also where the latency hides transfers.
void short_hops_are_cheap() {
  Network hiding = kNetwork;
  hiding.between.hidden = hiding.between.alpha;
  for (const Algorithm& algorithm : algorithms()) {
    const auto torus = make_torus({8});
    const double without = price(contended(algorithm, 8, *torus, {}), 1 << 15, {0, 1}, hiding).seconds;
    torus->hop = 1e-9;
    const double with = price(contended(algorithm, 8, *torus, {}), 1 << 15, {0, 1}, hiding).seconds;
    CHECK(with >= without && with <= without + 1e-6);
  }
}

bool is_refused(const std::function<void()>& make) {
  try {
    make();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::invalid;
  }
  return false;
}

void bad_topologies() {
  CHECK(is_refused([] { make_fat_tree(0, 4, 1); }));
  CHECK(is_refused([] { make_torus({4, 0}); }));
  CHECK(is_refused([] { make_graph(2, 2, {{0, 1, 1, 0}}, {"link"}); }));  // no way back
  CHECK(is_refused([] { make_graph(2, 2, {{0, 5, 1, 0}}, {"link"}); }));
}

}  // namespace

int main() {
  shares_are_fair();
  flows_drain();
  routes_are_simple();
  exchanges_are_counted();
  symmetry_counts_all();
  full_bisection_is_free();
  nothing_beats_the_uplink();
  short_hops_are_cheap();
  bad_topologies();
}
