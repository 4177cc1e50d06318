// Tests a channel's choice: the cheapest algorithm that can run, unless a name, a rule or an option
// selects another.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "check.hpp"
#include "collectives/choose.hpp"

using namespace ringcomm;

namespace {

const Network kNetwork{{2e-5, 8e-10, 1e-6, 0}, {1e-6, 2e-10, 1e-6, 0}, 1e-10, 1e-10};

Terms terms(std::vector<Rule> rules = {}, Cut given = {0, 0}) {
  return {kNetwork, {}, given, {}, std::move(rules), nullptr};
}

void the_cheapest_runs() {
  for (std::size_t c = 0; c < kCollectiveNames.size(); ++c) {
    const auto collective = static_cast<Collective>(c);
    for (const int size : {2, 3, 8, 100}) {
      Chooser chooser(size, Memory::none, terms());
      Menu menu(collective, size, {}, kNetwork);
      for (std::size_t nbytes = 1; nbytes <= std::size_t{1} << 28; nbytes *= 4) {
        for (const bool equal : {false, true}) {
          const Choice& choice = chooser.choose(collective, "", nbytes, equal);
          const auto options = menu.options("", nbytes, equal);
          const auto chosen =
              std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.name == choice.name; });
          CHECK(chosen != options.end() && chosen->cut == choice.cut);
          CHECK(chosen->chosen &&
                std::count_if(options.begin(), options.end(), [](const Option& o) { return o.chosen; }) == 1);
          for (const Option& other : options) {
            CHECK(chosen->price.seconds <= 1.03 * other.price.seconds);
            const bool cheaper = other.price.seconds < chosen->price.seconds;
            const bool more_rounds = nbytes < (64 << 10) && other.price.rounds > chosen->price.rounds;
            CHECK(!cheaper || more_rounds || other.peers > chosen->peers);  // otherwise it would have been chosen
          }
          CHECK(equal || choice.name != "bruck" || collective != Collective::alltoall);
          CHECK(&choice == &chooser.choose(collective, "", nbytes, equal));  // choices are cached
        }
      }
    }
  }
}

// Underestimates alpha, so that rounds look free. Short buffers still take few rounds.
void rounds_count_for_short_buffers() {
  Network network{{7e-6, 4.2e-8, 1e-6, 0}, {1e-6, 2e-10, 1e-6, 0}, 1e-10, 1e-10};  // 200 Mbit/s
  Menu menu(Collective::allreduce, 4, {}, network);
  const auto chosen_of = [](const std::vector<Option>& options) {
    return *std::find_if(options.begin(), options.end(), [](const Option& o) { return o.chosen; });
  };
  for (const std::size_t nbytes : {16 << 10, 32 << 10}) {
    const auto options = menu.options("", nbytes, true);
    const Option chosen = chosen_of(options);
    CHECK(chosen.price.rounds == 2);  // ring needs 6
    const auto ring = std::find_if(options.begin(), options.end(), [](const Option& o) { return o.name == "ring"; });
    CHECK(ring->price.seconds < 1.03 * chosen.price.seconds && ring->peers < chosen.peers);  // ring's price is close
  }
  // With the same prices, long buffers prefer few peers.
  CHECK(chosen_of(menu.options("", 64 << 10, true)).peers == 1);
}

void names_and_memory() {
  Chooser far(8, Memory::none, terms()), near(8, Memory::everybodys, terms()), alone(1, Memory::everybodys, terms());
  CHECK(far.choose(Collective::allreduce, "ring", 4, true).name == "ring");
  CHECK(far.choose(Collective::allreduce, "butterfly", 4, true).name == "butterfly_doubling");
  CHECK(far.choose(Collective::allreduce, "butterfly", 64 << 20, true).name == "butterfly_halving");
  CHECK(far.choose(Collective::allreduce, "my own", 64 << 20, true).name == "my own");
  CHECK(near.choose(Collective::allreduce, "", 4, true).name == "shared");
  CHECK(near.choose(Collective::allreduce, "ring", 4, true).name == "ring");
  CHECK(near.choose(Collective::broadcast, "", 4, true).name == "shared");
  CHECK(near.choose(Collective::broadcast, "chain", 4, true).name == "chain");
  CHECK(alone.choose(Collective::allreduce, "ring", 4, true).name == "local");
  // "shared" cannot run across hosts, but a custom algorithm of that name may
  CHECK(far.choose(Collective::allreduce, "shared", 4, true).route == Route::schedule &&
        !far.choose(Collective::allreduce, "shared", 4, true).algorithm);
  CHECK(near.choose(Collective::allreduce, "shared", 4, true).route == Route::shared);
  const Choice& rooted = far.choose(Collective::allreduce, "tree:3", 4, true);
  CHECK(rooted.algorithm->name == "tree" && rooted.root == 3 && rooted.name == "tree:3");
  CHECK(!far.choose(Collective::allreduce, "tree:8", 4, true).algorithm);  // it has 8 ranks
  std::set<std::string> chosen;
  for (std::size_t nbytes = 1; nbytes <= std::size_t{1} << 30; nbytes *= 2)
    chosen.insert(far.choose(Collective::allreduce, "", nbytes, true).name);
  CHECK(chosen.size() > 1);
}

void rules_hold() {
  using enum Collective;
  const std::vector<Rule> rules{
      {allreduce, 1000, 2000, 0, 100, "tree", 0}, {allreduce, 0, 5000, 0, 100, "ring", 512},
      {alltoall, 0, 100, 0, 100, "bruck", 0},     {alltoall, 0, 100, 0, 100, "pairwise", 0},
      {allgather, 7, 7, 0, 100, "", 4096},        {allreduce, 6000, 6000, 0, 100, "shared", 0},
      {allreduce, 7000, 7000, 8, 8, "tree", 0},   {allreduce, 7001, 7001, 9, 99, "tree", 0}};
  Chooser far(8, Memory::none, terms(rules)), near(8, Memory::everybodys, terms(rules));
  for (Chooser* chooser : {&far, &near}) {
    CHECK(chooser->choose(allreduce, "", 1000, true).name == "tree" &&
          chooser->choose(allreduce, "", 2000, true).name == "tree");
    CHECK(chooser->choose(allreduce, "", 999, true).name == "ring" &&
          chooser->choose(allreduce, "", 2001, true).name == "ring");
    CHECK(chooser->choose(allreduce, "", 2001, true).cut.segment == 512);
    // the algorithm of the call has precedence
    CHECK(chooser->choose(allreduce, "circulant", 2001, true).name == "circulant");
    CHECK(chooser->choose(alltoall, "", 50, true).name == "bruck");
    CHECK(chooser->choose(alltoall, "", 50, false).name == "pairwise");  // the first algorithm that can run
  }
  CHECK(far.choose(allgather, "", 7, true).cut.segment == 4096 &&
        far.choose(allgather, "", 8, true).cut.segment != 4096);
  CHECK(near.choose(allreduce, "", 5001, true).name == "shared" &&
        far.choose(allreduce, "", 5001, true).name != "shared");
  // This rule is for 8 ranks.
  CHECK(far.choose(allreduce, "", 7000, true).name == "tree" && far.choose(allreduce, "", 7001, true).name != "tree");
  // this rank has no shared memory
  CHECK(far.choose(allreduce, "", 6000, true).name == far.choose(allreduce, "", 6001, true).name);
}

// Sets a default for all-reduce. It has precedence over rules, but not over a call's algorithm, and
// applies only where it can run.
void a_default_goes_before_rules() {
  using enum Collective;
  const auto with = [](std::string name) {
    Terms all = terms({{allreduce, 0, 5000, 0, 100, "circulant", 0}, {broadcast, 0, 5000, 0, 100, "chain", 0}});
    all.hosts = {0, 1, 2, 0, 1, 2};
    all.algorithm = std::move(name);
    return all;
  };
  for (const Memory memory : {Memory::none, Memory::on_hosts, Memory::everybodys}) {
    for (const char* name : {"ring", "tree:5", "butterfly", "my own"}) {
      Chooser chooser(6, memory, with(name));
      const std::string expected = std::string(name) == "butterfly" ? "butterfly_doubling" : name;
      const std::string chosen = chooser.choose(allreduce, "", 100, true).name;
      CHECK(chosen == expected || chosen == "two_level:" + expected);
      CHECK(chooser.choose(allreduce, "round_robin", 1 << 20, true).name.ends_with("round_robin"));
      CHECK(chooser.choose(broadcast, "", 100, true).name.ends_with("chain"));
      CHECK(!chooser.free(allreduce));
    }
    Chooser two(6, memory, with("two_level:ring")), shared(6, memory, with("shared")), far(6, memory, with("tree:6"));
    CHECK(two.choose(allreduce, "", 100, true).name == (memory == Memory::on_hosts ? "two_level:ring" : "circulant"));
    CHECK((shared.choose(allreduce, "", 100, true).route == Route::shared) == (memory == Memory::everybodys));
    CHECK(far.choose(allreduce, "", 100, true).name.ends_with("circulant"));
  }
}

void names_are_checked() {
  using enum Collective;
  const auto why = [](Collective collective, const char* name, int size) -> std::string {
    try {
      check_algorithm(collective, name, size);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid);
      return error.what();
    }
    return "";
  };
  for (const char* name : {"", "shared", "ring", "butterfly", "two_level:butterfly", "tree:3", "two_level:tree:3"})
    CHECK(why(allreduce, name, 4).empty() && why(allreduce, name, 0).empty());
  for (const char* name : {"rign", "ring:1", "tree:", "tree:-1", "tree:x", "butterfly:0", "two_level:", "two_level:x"})
    CHECK(why(allreduce, name, 4).find(std::string("algorithm '") + name + "'; known: butterfly,") !=
          std::string::npos);
  CHECK(why(allreduce, "tree:4", 4).find("not one of the 4 ranks") != std::string::npos);
  CHECK(why(allreduce, "tree:4", 0).empty());
  CHECK(!why(alltoall, "two_level:bruck", 4).empty() && why(alltoall, "bruck", 4).empty());
  CHECK(!why(broadcast, "butterfly", 4).empty());
}

void given_cuts_are_kept() {
  Chooser chooser(4, Memory::none, terms({{Collective::allreduce, 0, 10, 0, 100, "", 77}}, {4096, 3}));
  for (const char* name : {"", "ring", "my own"}) {
    CHECK((chooser.choose(Collective::allreduce, name, 1 << 20, true).cut == Cut{4096, 3}));
  }
  CHECK((chooser.choose(Collective::allreduce, "", 10, true).cut == Cut{77, 3}));
}

// Checks that a cluster of hosts with several ranks each offers every algorithm on one level and on
// two.
void two_levels_are_on_the_menu() {
  std::vector<int> hosts;
  for (int rank = 0; rank < 24; ++rank) hosts.push_back(rank % 6);
  using enum Collective;
  for (const Collective collective : {allreduce, reduce, broadcast, allgather, reducescatter}) {
    Menu menu(collective, 24, hosts, kNetwork);
    const auto one = menu.options("", 1 << 24, true), both = menu.options("", 1 << 24, true, true);
    CHECK(both.size() == 2 * one.size());
    for (const Option& option : one) {
      CHECK(std::count_if(both.begin(), both.end(),
                          [&](const Option& o) { return o.name == "two_level:" + option.name; }) == 1);
    }
    const auto cheapest = std::min_element(
        both.begin(), both.end(), [](const Option& a, const Option& b) { return a.price.seconds < b.price.seconds; });
    CHECK(cheapest->name.starts_with("two_level:"));
    const auto named = menu.options("two_level:" + one.front().name, 1 << 24, true, true);
    CHECK(named.size() == 1 && named[0].chosen && named[0].name == "two_level:" + one.front().name);
    CHECK(menu.options("two_level:" + one.front().name, 1 << 24, true).empty() &&
          menu.options("two_level:no", 1, true, true).empty());
  }
  CHECK(Menu(allreduce, 24, {}, kNetwork).options("ring", 1 << 24, true, true).size() == 1);
  CHECK(Menu(broadcast, 24, hosts, kNetwork).options("chain", 1 << 24, true, true).size() == 2);
  CHECK(Menu(alltoall, 24, hosts, kNetwork).options("direct", 1 << 24, true, true).size() == 1);
  // One host with several ranks is enough, even if the other hosts have one rank.
  CHECK(Menu(allreduce, 4, {0, 1, 1, 2}, kNetwork).options("ring", 1 << 24, true, true).size() == 2);
  CHECK(Menu(allreduce, 3, {0, 1, 2}, kNetwork).options("ring", 1 << 24, true, true).size() == 1);
}

void channels_choose_two_levels() {
  using enum Collective;
  const std::vector<Rule> rules{{broadcast, 10, 10, 0, 100, "two_level:binomial", 0}};
  const Terms there{kNetwork, {0, 1, 2, 0, 2, 2}, {0, 0}, {}, rules,
                    nullptr};  // neighbouring ranks are on different hosts
  Chooser chooser(6, Memory::on_hosts, there), none(6, Memory::none, there);
  for (const Collective collective : {allreduce, reduce, broadcast, allgather, reducescatter}) {
    CHECK(chooser.choose(collective, "", 16 << 20, true).name.starts_with("two_level:"));
    CHECK(!none.choose(collective, "", 16 << 20, true).name.starts_with("two_level:"));
  }
  CHECK(chooser.choose(broadcast, "two_level:chain", 16 << 20, true).name == "two_level:chain");
  CHECK(chooser.choose(broadcast, "", 10, true).name == "two_level:binomial");
  CHECK(!none.choose(broadcast, "", 10, true).name.starts_with("two_level:"));
}

// Prices of a job with a topology include contention, so algorithms over short distances can win.
void a_topology_counts() {
  using enum Collective;
  Terms on_torus = terms();
  on_torus.topology = make_torus({16});
  Chooser with(16, Memory::none, on_torus), without(16, Memory::none, terms());
  Menu menu(allreduce, 16, {}, kNetwork, on_torus.topology);
  std::set<std::string> names;
  for (std::size_t nbytes = 1; nbytes <= std::size_t{1} << 28; nbytes *= 2) {
    const auto options = menu.options("", nbytes, true);
    const auto chosen = std::find_if(options.begin(), options.end(), [](const Option& o) { return o.chosen; });
    const Choice& choice = with.choose(allreduce, "", nbytes, true);
    CHECK(chosen != options.end() && chosen->name == choice.name && chosen->cut == choice.cut);
    names.insert(choice.name);
    CHECK(!without.choose(allreduce, "", nbytes, true).name.starts_with("bine"));
  }
  CHECK(names.contains("bine_halving") && names.contains("ring"));
  CHECK(with.choose(allreduce, "tree", 1 << 18, true).name == "tree");
}

// A call runs, without contention in its price, if a topology leaves no algorithm for it.
void a_topology_forbids_no_call() {
  using enum Collective;
  Terms many = terms();
  many.topology = make_torus({16, 726});
  Chooser chooser(11616, Memory::none, many);
  CHECK(Menu(alltoall, 11616, {}, kNetwork, many.topology).options("pairwise", 1 << 20, true).empty());
  const Choice& choice = chooser.choose(alltoall, "pairwise", 1 << 20, true);
  CHECK(choice.algorithm && choice.name == "pairwise");
}

// A group's hosts keep their places: four hosts of one rack do not share its uplink, and hosts of
// four racks do not share one either, but two hosts of each of two racks do.
void a_group_has_its_hosts() {
  const auto racks = make_fat_tree(16, 4, 4);
  const auto seconds = [&](const std::vector<int>& hosts, int ranks, const std::string& name) {
    Placement placement;
    for (const int host : hosts) placement.insert(placement.end(), static_cast<std::size_t>(ranks), host);
    const int size = static_cast<int>(placement.size());
    const auto options =
        Menu(Collective::allreduce, size, placement, kNetwork, racks).options(name, 1 << 24, true, ranks > 1);
    return options.at(0).price.seconds;
  };
  for (const auto& [ranks, name] : {std::pair{1, "butterfly_halving"}, {2, "two_level:butterfly_halving"}}) {
    const double one_rack = seconds({4, 5, 6, 7}, ranks, name), four_racks = seconds({0, 4, 8, 12}, ranks, name);
    CHECK(std::abs(four_racks / one_rack - 1) < 0.01);
    CHECK(seconds({0, 1, 4, 5}, ranks, name) > 1.2 * one_rack);
  }
}

}  // namespace

int main() {
  the_cheapest_runs();
  rounds_count_for_short_buffers();
  names_and_memory();
  rules_hold();
  a_default_goes_before_rules();
  names_are_checked();
  given_cuts_are_kept();
  two_levels_are_on_the_menu();
  channels_choose_two_levels();
  a_topology_counts();
  a_topology_forbids_no_call();
  a_group_has_its_hosts();
  std::puts("choosing: passed");
}
