// Tests prices: against the closed forms of the algorithms, few ranks against all, hosts that share
// links, and very large sizes.
#include <chrono>
#include <cmath>

#include "check.hpp"
#include "schedule/price.hpp"
#include "schedule_simulator.hpp"

using namespace ringcomm;

namespace {

constexpr std::size_t kMB = 1 << 20;

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }
int ceil_log2(int p) {
  int rounds = 0;
  while ((1 << rounds) < p) ++rounds;
  return rounds;
}
Placement blocks_of(int per_host, int size) {
  Placement hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / per_host);
  return hosts;
}
Profile profile_of(const Algorithm& a, int p, const Placement& hosts = {}) {
  return make_profile([&](int rank) { return a.make(rank, p, 0); }, p, hosts);
}
const Algorithm& allreduce(std::string_view name) { return *find_algorithm(Collective::allreduce, name); }
Network simple(double alpha, double beta, double gamma) {
  return {{alpha, beta, 0, 0}, {alpha / 10, beta / 10, 0, 0}, gamma, beta / 20};
}

void same(const Price& one, const Price& all) {
  CHECK(near(one.seconds, all.seconds) && one.messages == all.messages && near(one.bytes, all.bytes));
  CHECK(near(one.reduced, all.reduced) && one.rounds == all.rounds);
}

// Checks that a declared symmetry, or declared busiest ranks, give the price that all ranks give,
// for any cut.
void few_ranks_price_all() {
  const Network model{{1e-5, 1e-9, 2e-6, 3e-6}, {1e-6, 1e-10, 1e-6, 0}, 1e-10, 1e-10};
  for (const Algorithm& algorithm : algorithms()) {
    for (const int p : {1, 2, 3, 4, 7, 8, 12, 16, 33, 64}) {
      for (const int root : {0, p / 3}) {
        int made = 0;
        const auto with = [&](bool declared) {
          return make_profile(
              [&](int rank) {
                Schedule s = algorithm.make(rank, p, root);
                ++made;
                if (!declared) s.symmetry = Symmetry::none, s.busiest.clear();
                return s;
              },
              p);
        };
        const Profile few = with(true);
        CHECK(made <= 3);
        const Profile all = with(false);
        for (const Cut& cut : {Cut{0, 1}, Cut{100'000, 1}, Cut{10'000, 4}, Cut{10'000, 1000}}) {
          same(price(few, kMB, cut, model), price(all, kMB, cut, model));
        }
      }
    }
  }
}

void prices_are_the_closed_forms() {
  const Network m = simple(2e-5, 8e-10, 1e-10);
  const double alpha = m.between.alpha, beta = m.between.beta, gamma = m.gamma;
  for (const int p : {2, 3, 4, 5, 8, 16, 31, 64}) {
    for (const double S : {0.0, 4096.0, 1e6, 64e6}) {
      const double f = (p - 1.0) / p, L = ceil_log2(p), n = p - 1;
      const double shares = 2 * f * S * beta + f * S * gamma;
      const auto seconds = [&](std::string_view name) {
        return price(profile_of(allreduce(name), p), static_cast<std::size_t>(S), {}, m).seconds;
      };
      CHECK(near(seconds("ring"), 2 * n * alpha + shares));
      CHECK(near(seconds("round_robin"), 2 * alpha + shares));
      CHECK(near(seconds("circulant"), 2 * L * alpha + shares));
      CHECK(near(seconds("bine_halving"), 2 * L * alpha + shares));
      CHECK(near(seconds("all_to_all"), alpha + n * S * (beta + gamma)));
      CHECK(near(seconds("master_worker"), 2 * alpha + n * S * (2 * beta + gamma)));
      CHECK(near(seconds("tree"), L * (2 * alpha + 2 * S * beta + S * gamma)));
      if ((p & (p - 1)) != 0) continue;
      CHECK(near(seconds("butterfly_halving"), 2 * L * alpha + shares));
      CHECK(near(seconds("butterfly_doubling"), L * (alpha + S * beta + S * gamma)));
      CHECK(near(seconds("bine_doubling"), L * (alpha + S * beta + S * gamma)));
    }
  }
}

// Checks that each further message of a round takes a gap, in addition to the time of all bytes.
void gaps_and_what_alpha_hides() {
  const Algorithm& a = allreduce("round_robin");
  const Network posting{{1e-5, 1e-12, 1e-4, 0}, {}, 0, 0}, hiding{{1e-3, 1e-8, 0, 4e-4}, {}, 0, 0};
  CHECK(near(price(profile_of(a, 9), 9000, {}, posting).seconds, 2 * (1e-5 + 8000 * 1e-12 + 7 * 1e-4)));
  // the gaps take longer than alpha hides
  CHECK(near(price(profile_of(a, 9), 900'000'000, {}, posting).seconds, 2 * (1e-5 + 8e8 * 1e-12 + 7 * 1e-4)));
  CHECK(near(price(profile_of(a, 9), 9000, {}, hiding).seconds, 2 * 1e-3));  // 8000 bytes: 80 µs
  CHECK(near(price(profile_of(a, 9), 90'000'000, {}, hiding).seconds, 2 * (1e-3 + 0.8 - 4e-4)));
}

// Checks that with many segments the busiest resource sets the pace, and all other work overlaps
// with it.
void many_segments_take_the_links_time() {
  for (const int p : {2, 4, 8, 13}) {
    const double f = (p - 1.0) / p, S = 64e6, beta = 8e-10;
    const Network m{{1e-6, beta, 0, 0}, {}, 1e-12, 0};
    for (const auto& [name, bytes] : {std::pair{"ring", 2 * f * S},
                                      {"circulant", 2 * f * S},
                                      {"round_robin", 2 * f * S},
                                      {"master_worker", (p - 1) * S}}) {
      const double seconds =
          price(profile_of(allreduce(name), p), static_cast<std::size_t>(S), {64'000, 16}, m).seconds;
      CHECK(seconds > 0.999 * bytes * beta && seconds < 1.05 * bytes * beta);
    }
    // A window of one instance waits at every round. Many instances in flight never take longer
    // than one after another.
    for (const Algorithm& a : algorithms()) {
      const Profile profile = profile_of(a, p);
      const double alone = price(profile, 64'000, {64'000, 1}, m).seconds,
                   one = price(profile, 64'000'000, {64'000, 1}, m).seconds;
      CHECK(profile.one_way || near(one, 1000 * alone));
      double before = one;
      for (const std::size_t window : {2, 4, 8, 1000}) {
        const double now = price(profile, 64'000'000, {64'000, window}, m).seconds;
        CHECK(now <= before * (1 + 1e-9));
        before = now;
      }
    }
  }
}

// Checks that bytes between hosts share links if ranks share hosts.
void ranks_of_a_host_share_its_link() {
  const double beta = 1e-8;
  const Network m{{1e-9, beta, 0, 0}, {1e-9, 1e-14, 0, 0}, 0, 0};
  const double S = 1e6;
  for (const int per_host : {1, 2, 4, 8}) {
    const int p = 32;
    const auto seconds = [&](std::string_view name) {
      return price(profile_of(allreduce(name), p, blocks_of(per_host, p)), static_cast<std::size_t>(S), {}, m).seconds;
    };
    const auto about = [](double a, double b) { return std::abs(a - b) < 1e-3 * b; };
    CHECK(about(seconds("ring"), 2 * 31.0 / 32 * S * beta));                    // one rank of a host sends out of it
    CHECK(about(seconds("all_to_all"), per_host * (p - per_host) * S * beta));  // each rank to each rank of other hosts
    CHECK(about(seconds("round_robin"), 2.0 * per_host * (p - per_host) * S / p * beta));
    // nearby ranks exchange first, then their shares
    CHECK(about(seconds("butterfly_halving"), 2.0 * (p - per_host) / p * S * beta));
    CHECK(about(seconds("butterfly_doubling"), per_host * (5 - std::log2(per_host)) * S * beta));
  }
  // With all ranks on one host, no link is used.
  CHECK(price(profile_of(allreduce("ring"), 8, blocks_of(8, 8)), 1 << 20, {}, simple(1, 1, 0)).seconds <
        0.2 * (14 + 2 * kMB));
  // A few hosts must give the price of all hosts (exactly if the hosts are identical).
  for (const Algorithm& a : algorithms()) {
    const Placement hosts = blocks_of(8, 512);
    Placement shuffled = hosts;  // the same hosts with other numbers
    for (int& host : shuffled) host = (host * 29 + 7) % 64;
    same(price(profile_of(a, 512, hosts), kMB, {100'000, 2}, m),
         price(profile_of(a, 512, shuffled), kMB, {100'000, 2}, m));
  }
  // Neighbouring hosts of an odd number of ranks are mirror images of each other.
  const Placement triples = blocks_of(3, 510);
  const auto undeclared = [](int rank) {
    Schedule s = allreduce("bine_halving").make(rank, 510, 0);
    s.symmetry = Symmetry::none;
    return s;
  };
  same(price(profile_of(allreduce("bine_halving"), 510, triples), kMB, {100'000, 2}, m),
       price(make_profile(undeclared, 510, triples), kMB, {100'000, 2}, m));
}

// "butterfly" means the cheaper of its two variants. For one instance at powers of two, the choice
// changes at the design's S*.
void doubling_wins_below_its_limit() {
  for (const Network& m : {simple(2e-5, 8e-10, 1e-10), simple(1e-6, 1e-10, 1e-10)}) {
    for (const int p : {2, 4, 8, 64, 1024}) {
      const Profile doubling = profile_of(allreduce("butterfly_doubling"), p),
                    halving = profile_of(allreduce("butterfly_halving"), p);
      const double L = ceil_log2(p), f = (p - 1.0) / p, gain = (L - 2 * f) * m.between.beta + (L - f) * m.gamma;
      for (std::size_t S = 1; S < std::size_t{1} << 32; S *= 2) {
        if (std::abs(static_cast<double>(S) * gain - L * m.between.alpha) < 1e-9) continue;
        CHECK((price(doubling, S, {}, m).seconds < price(halving, S, {}, m).seconds) ==
              (static_cast<double>(S) < L * m.between.alpha / gain));
      }
    }
  }
}

void the_cheapest_cut_is_cheap() {
  for (const Network& m : {simple(1e-4, 8e-8, 1e-10), simple(2e-5, 8e-10, 1e-10), simple(2e-6, 4e-11, 1e-10)}) {
    for (const Algorithm& a : algorithms()) {
      for (const int p : {2, 5, 16, 100}) {
        const Profile profile = profile_of(a, p);
        for (const std::size_t S : {std::size_t{4}, std::size_t{64} << 10, 4 * kMB, 256 * kMB}) {
          const Priced best = cheapest(profile, S, m);
          same(best.price, price(profile, S, best.cut, m));
          CHECK(best.cut.segment == 0 || best.cut.segment >= S || best.cut.segment >= profile.parts << 10);
          for (const std::size_t segment : {std::size_t{240} << 10, p * (std::size_t{60} << 10)}) {
            if (segment < profile.parts << 10 || S > segment * 64 || a.collective == Collective::alltoall ||
                a.collective == Collective::barrier)
              continue;
            for (const std::size_t window : {1, 4, 16}) {
              CHECK(best.price.seconds <= 1.15 * price(profile, S, {segment, window}, m).seconds);
            }
          }
          const Priced given = cheapest(profile, S, m, {1000, 3});
          CHECK((given.cut == Cut{1000, 3}));
        }
      }
    }
  }
  // A link with low bandwidth relative to its latency needs little in flight: more would only wait
  // in its queue.
  CHECK(cheapest(profile_of(allreduce("ring"), 8), 16 * kMB, simple(1e-4, 8e-8, 1e-10)).cut.window == 1);
  CHECK(cheapest(profile_of(allreduce("ring"), 8), 16 * kMB, simple(2e-5, 8e-11, 1e-11)).cut.window > 1);
}

// Checks two levels on a link that all ranks of a host share: never faster than the bound, nor much
// slower.
void two_levels_reach_their_bound() {
  const int hosts = 8, lanes = 4;
  const Network m{{1e-6, 1e-8, 0, 0}, {1e-7, 1e-10, 0, 0}, 1e-11, 1e-11};
  const double S = 64e6, bound = 2.0 * (hosts - 1) / hosts * S * m.between.beta;
  for (const char* name : {"ring", "circulant", "butterfly_halving", "round_robin"}) {
    const double seconds =
        cheapest_two_level(profile_of(allreduce(name), hosts), {lanes, lanes}, static_cast<std::size_t>(S), m)
            .price.seconds;
    CHECK(seconds > bound && seconds < 1.05 * bound);
  }
  // The bounds of the other collectives: all S bytes pass through a chain of hosts, or a host
  // receives the data it lacks, or sends the data of other hosts.
  const double share = (hosts - 1.0) / hosts * S * m.between.beta;
  for (const auto& [collective, name, least] :
       std::vector<std::tuple<Collective, const char*, double>>{{Collective::broadcast, "chain", S * m.between.beta},
                                                                {Collective::reduce, "chain", S * m.between.beta},
                                                                {Collective::allgather, "ring", share},
                                                                {Collective::reducescatter, "ring", share}}) {
    for (const int most : {lanes, lanes + 2}) {
      const double seconds = cheapest_two_level(profile_of(*find_algorithm(collective, name), hosts), {lanes, most},
                                                static_cast<std::size_t>(S), m)
                                 .price.seconds;
      CHECK(seconds > least && seconds < 1.1 * least);
    }
  }
  Network slow_memory = m;
  slow_memory.copy = 1e-7;
  const double seconds =
      cheapest_two_level(profile_of(allreduce("ring"), hosts), {lanes, lanes}, static_cast<std::size_t>(S), slow_memory)
          .price.seconds;
  CHECK(seconds > 2 * 0.75 * S * slow_memory.copy && seconds < 1.2 * (2 * 0.75 * S * slow_memory.copy) + 0.1 * bound);
}

// Prices every algorithm of every collective at very large sizes, in well under a second each.
void many_ranks_are_priced() {
  constexpr int p = 16384;
  const Network m = simple(2e-5, 8e-10, 1e-10);
  for (const Algorithm& a : algorithms()) {
    for (const int per_host : {1, 8}) {
      const auto began = std::chrono::steady_clock::now();
      const Profile profile = profile_of(a, p, per_host == 1 ? Placement{} : blocks_of(per_host, p));
      double seconds = 0;
      for (std::size_t S = 1; S <= std::size_t{1} << 30; S *= 4) {
        const double now = cheapest(profile, S, m).price.seconds;
        CHECK(now >= seconds && std::isfinite(now));
        seconds = now;
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      CHECK(profile.runs.size() < 100 && profile.hosts.size() < 100);
      std::printf("%s %s, %d ranks, %d on a host: priced in %.3f s: %.3f s\n",
                  std::string(name_of(a.collective)).c_str(), std::string(a.name).c_str(), p, per_host, took.count(),
                  seconds);
    }
  }
}

}  // namespace

int main() {
  few_ranks_price_all();
  prices_are_the_closed_forms();
  gaps_and_what_alpha_hides();
  many_segments_take_the_links_time();
  ranks_of_a_host_share_its_link();
  doubling_wins_below_its_limit();
  the_cheapest_cut_is_cheap();
  two_levels_reach_their_bound();
  many_ranks_are_priced();
  std::puts("schedule prices: passed");
}
