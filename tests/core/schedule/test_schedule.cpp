// Tests every built-in: proves it, counts its messages and bytes against the table of costs, and
// finds it in the cache.
#include <cmath>
#include <map>
#include <set>

#include "base/error.hpp"
#include "check.hpp"
#include "schedule/prove.hpp"
#include "schedule/schedule_cache.hpp"
#include "schedule_simulator.hpp"

using namespace ringcomm;
using simulation::all_ranks;

namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(1.0, std::max(std::abs(a), std::abs(b))); }
int ceil_log2(int p) {
  int rounds = 0;
  while ((1 << rounds) < p) ++rounds;
  return rounds;
}
bool rooted(Collective c) { return c == Collective::broadcast || c == Collective::reduce; }

void every_built_in_is_proved() {
  int proved = 0;
  for (const Algorithm& algorithm : algorithms()) {
    for (int p = 1; p <= 64; ++p) {
      std::set<int> roots{0};
      const bool any_root = rooted(algorithm.collective) || algorithm.any_root;
      if (any_root) roots = {0, 1 % p, p / 2, p - 1};
      if (any_root && p <= 9) {
        for (int root = 0; root < p; ++root) roots.insert(root);
      }
      for (const int root : roots) {
        auto schedules = all_ranks(algorithm, p, root);
        const Proof proof = prove(schedules);
        if (!proof.ok) {
          std::fprintf(stderr, "%s p=%d root=%d: %s\n", schedules[0].algorithm.c_str(), p, root, proof.why.c_str());
        }
        CHECK(proof.ok);
        CHECK(schedules[0].algorithm == algorithm.name && schedules[0].collective == algorithm.collective);
        for (const Schedule& s : schedules) {
          CHECK(s.rounds.size() == schedules[0].rounds.size());
          if (p == 1 && s.collective != Collective::alltoall) CHECK(s.rounds.empty());
        }
        ++proved;
      }
    }
  }
  std::printf("proved %d sets of schedules\n", proved);
}

// Messages, bytes and rounds of a rank. Bytes are in units of the buffer.
struct Sent {
  int messages = 0;
  double buffers = 0;
};
Sent sent_by(const Schedule& s) {
  const int parts = s.collective == Collective::alltoall ? s.size : s.blocks;
  Sent sent;
  for (const Round& round : s.rounds) {
    std::set<int> peers;
    for (const Step& step : round) {
      if (step.kind != StepKind::send) continue;
      peers.insert(step.peer);
      sent.buffers += 1.0 / parts;
    }
    sent.messages += static_cast<int>(peers.size());
  }
  return sent;
}

struct Row {
  std::function<Sent(int p, int rank)> sends;  // an upper bound, or exact
  bool exact;
  std::function<int(int p)> depth;
};

std::map<std::string, Row> allreduce_table() {
  const auto share = [](int p) { return (p - 1.0) / p; };
  const auto folded = [](int p) { return (p & (p - 1)) != 0; };
  std::map<std::string, Row> table;
  table["all_to_all"] = {[](int p, int) { return Sent{p - 1, p - 1.0}; }, true, [](int p) { return p > 1 ? 1 : 0; }};
  table["master_worker"] = {[](int p, int r) { return r == 0 ? Sent{p - 1, p - 1.0} : Sent{1, 1.0}; }, true,
                            [](int p) { return p > 1 ? 2 : 0; }};
  table["tree"] = {[](int p, int) { return Sent{ceil_log2(p), 1.0 * ceil_log2(p)}; }, false,
                   [](int p) { return 2 * ceil_log2(p); }};
  table["round_robin"] = {[=](int p, int) { return Sent{2 * (p - 1), 2 * share(p)}; }, true,
                          [](int p) { return p > 1 ? 2 : 0; }};
  table["ring"] = {[=](int p, int) { return Sent{2 * (p - 1), 2 * share(p)}; }, true,
                   [](int p) { return 2 * (p - 1); }};
  table["circulant"] = {[=](int p, int) { return Sent{2 * ceil_log2(p), 2 * share(p)}; }, true,
                        [](int p) { return 2 * ceil_log2(p); }};
  // It has one buffer in and one out; doubling then needs one round more than L.
  table["butterfly_doubling"] = {[](int p, int) { return Sent{ceil_log2(p), 1.0 * ceil_log2(p)}; }, false,
                                 [=](int p) { return ceil_log2(p) + (folded(p) ? 1 : 0); }};
  table["butterfly_halving"] = {[=](int p, int) {
                                  const int core = folded(p) ? 1 << (ceil_log2(p) - 1) : p;
                                  return Sent{2 * ceil_log2(p), 2 * share(core) + (folded(p) ? 1 : 0)};
                                },
                                false, [](int p) { return 2 * ceil_log2(p); }};
  table["bine_doubling"] = table["butterfly_doubling"];
  table["bine_halving"] = {[=](int p, int) { return Sent{(p % 2 ? 4 : 2) * ceil_log2(p), 2 * share(p)}; }, false,
                           [](int p) { return 2 * ceil_log2(p); }};
  return table;
}

// Checks that the part with the lowest rank is always the first operand. Values are the lowest rank
// in them.
void lowest_rank_comes_first() {
  std::mt19937 random{11};
  constexpr int nothing = 1 << 20;
  const auto fits = [](int, int) { return true; };
  const auto join = [](int first, int second) {
    CHECK(first < second);
    return first;
  };
  for (const Algorithm& algorithm : algorithms()) {
    using enum Collective;
    const Collective c = algorithm.collective;
    if (c != allreduce && c != reduce && c != reducescatter) continue;
    for (const int p : {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 23, 31, 32, 33, 64}) {
      for (const int root : {0, p / 2, p - 1}) {
        const auto schedules = all_ranks(algorithm, p, root);
        std::vector<std::vector<int>> blocks;
        for (const Schedule& s : schedules) {
          blocks.emplace_back(simulation::at(s.blocks), s.rank);
          blocks.back().resize(blocks.back().size() + s.temps.size(), nothing);
        }
        CHECK(simulation::Simulator<int>::run(schedules, blocks, random, fits, join));
      }
    }
  }
}

void table_of_costs_holds() {
  const auto table = allreduce_table();
  for (const std::string_view name : algorithm_names(Collective::allreduce)) {
    const Row& row = table.at(std::string(name));
    for (int p = 1; p <= 64; ++p) {
      const auto schedules = all_ranks(*find_algorithm(Collective::allreduce, name), p);
      const bool power = (p & (p - 1)) == 0, pairs = name.starts_with("butterfly") || name.starts_with("bine");
      for (const Schedule& s : schedules) {
        const Sent is = sent_by(s), documented = row.sends(p, s.rank);
        CHECK(static_cast<int>(s.rounds.size()) == row.depth(p));
        if (row.exact || (pairs && power))
          CHECK(is.messages == documented.messages && near(is.buffers, documented.buffers));
        CHECK(is.messages <= documented.messages && is.buffers <= documented.buffers + 1e-9);
      }
    }
  }
}

// Checks the other collectives: messages and bytes (in buffers) of the busiest rank, and rounds.
void other_collectives_cost_what_they_say() {
  for (int p = 1; p <= 64; ++p) {
    const int rounds = ceil_log2(p);
    const double share = (p - 1.0) / p;
    const auto expect = [&](Collective c, const char* name, int messages, double buffers, int depth) {
      Sent most;
      const auto schedules = all_ranks(*find_algorithm(c, name), p, rooted(c) ? p / 3 : 0);
      for (const Schedule& s : schedules) {
        const Sent sent = sent_by(s);
        most = {std::max(most.messages, sent.messages), std::max(most.buffers, sent.buffers)};
      }
      CHECK(static_cast<int>(schedules[0].rounds.size()) == depth);
      CHECK(most.messages <= messages && most.buffers <= buffers + 1e-9);
    };
    using enum Collective;
    expect(reduce, "binomial", 1, 1, rounds);
    expect(reduce, "bine", 1, 1, rounds);
    expect(reduce, "ring_gather", p, 2 * share, p - 1 + rounds);
    expect(reduce, "chain", 4 * p, 1, p == 1 ? 0 : 5 * p - 2);
    expect(broadcast, "binomial", rounds, rounds, rounds);
    expect(broadcast, "bine", rounds, rounds, rounds);
    expect(broadcast, "scatter_ring", rounds + p - 1, 2 * share, p - 1 + rounds);
    expect(broadcast, "chain", 4 * p, 1, p == 1 ? 0 : 5 * p - 2);
    expect(allgather, "bruck", rounds, share, rounds);
    expect(allgather, "ring", p - 1, share, p - 1);
    expect(reducescatter, "circulant", rounds, share, rounds);
    expect(reducescatter, "ring", p - 1, share, p - 1);
    expect(alltoall, "bruck", rounds, rounds * 0.5 + (p & (p - 1) ? 0.5 : 0), std::max(1, rounds));
    expect(alltoall, "pairwise", p - 1, share, std::max(1, p - 1));
    expect(alltoall, "direct", p - 1, share, 1);
    expect(barrier, "dissemination", rounds, rounds, rounds);
  }
}

void registry_finds_and_keeps() {
  CHECK(find_algorithm(Collective::allreduce, "butterfly") ==
        find_algorithm(Collective::allreduce, "butterfly_halving"));
  CHECK(!find_algorithm(Collective::broadcast, "butterfly") && !find_algorithm(Collective::allreduce, "nonsense"));
  CHECK(algorithms_named(Collective::allreduce, "nonsense").empty());
  CHECK(algorithms_named(Collective::allreduce, "ring").at(0)->name == "ring");
  CHECK(algorithms_named(Collective::allreduce, "butterfly").size() == 2);
  CHECK(algorithms_named(Collective::allreduce, "swing").size() == 2);
  for (const Algorithm* a : algorithms_named(Collective::allreduce, "")) CHECK(a->alias != "swing");
  CHECK(algorithms_named(Collective::allgather, "").size() == algorithm_names(Collective::allgather).size());
  std::set<std::pair<Collective, std::string_view>> names;
  for (const Algorithm& a : algorithms()) CHECK(names.emplace(a.collective, a.name).second && !a.summary.empty());
  for (std::size_t c = 0; c < kCollectiveNames.size(); ++c) CHECK(!algorithm_names(static_cast<Collective>(c)).empty());

  const auto ring = schedule_for(Collective::allreduce, "ring", 1, 4);
  CHECK(schedule_for(Collective::allreduce, "tree:3", 1, 4)->root == 3);
  CHECK(schedule_for(Collective::broadcast, "binomial", 1, 4, 3)->root == 3);
  for (const auto& [name, rank, size, root] :
       {std::tuple{"nonsense", 0, 4, 0}, {"ring", 4, 4, 0}, {"ring", -1, 4, 0}, {"ring", 0, 0, 0}, {"ring", 0, 4, 4}}) {
    bool thrown = false;
    try {
      schedule_for(Collective::allreduce, name, rank, size, root);
    } catch (const Error& error) {
      thrown = error.kind() == ErrorKind::invalid;
      if (std::string_view(name) == "nonsense") {
        CHECK(std::string(error.what()).find("round_robin") != std::string::npos);
      }
    }
    CHECK(thrown);
  }
  ScheduleCache cache;
  const Algorithm &rings = *find_algorithm(Collective::allreduce, "ring"),
                  &trees = *find_algorithm(Collective::allreduce, "tree");
  const auto kept = cache.get(rings, 3, 4, 0);
  CHECK(kept == cache.get(rings, 3, 4, 3));  // a ring has no root
  CHECK(cache.get(trees, 1, 4, 3)->root == 3 && cache.get(trees, 1, 4, 0)->root == 0);
  // More steps than the cache keeps: each result is still the requested schedule.
  std::size_t steps = 0;
  for (int i = 0; steps < (std::size_t{2} << 20); ++i) {
    const int size = 100 + i % 400, rank = i % size;
    const auto s = cache.get(rings, rank, size, 0);
    CHECK(s->size == size && s->rank == rank && s->algorithm == "ring");
    for (const Round& round : s->rounds) steps += 1 + round.size();
  }
  CHECK(kept->rank == 3 && kept != cache.get(rings, 3, 4, 0));  // a schedule in use was kept
  CHECK(ring->size == 4 && ring->rounds.size() == 6);
}

void reasons_name_the_place() {
  auto ring = all_ranks(*find_algorithm(Collective::allreduce, "ring"), 4);
  const auto why = [&](const std::function<void(std::vector<Schedule>&)>& spoil) {
    auto spoiled = ring;
    spoil(spoiled);
    const Proof proof = prove(spoiled);
    CHECK(!proof.ok && !proof.why.empty());
    std::printf("  %s\n", proof.why.c_str());
    return proof.why;
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(why([](auto& s) { s[2].rounds[3].erase(s[2].rounds[3].begin()); }), "round"));
  CHECK(has(why([](auto& s) { s[2].rounds[3][0].block = 9; }), "rank 2, round 3: block 9"));
  CHECK(has(why([](auto& s) { s[2].rounds[3][0].peer = 2; }), "rank 2, round 3"));
  CHECK(has(why([](auto& s) { s[2].rounds[0][1].kind = StepKind::receive; }), "lacks rank"));
  CHECK(has(why([](auto& s) { s[1].rounds[0][0].block = 3; }), "another size"));
  CHECK(has(why([](auto& s) { s[3].rank = 1; }), "rank 3"));
  CHECK(has(why([](auto& s) { s[3].blocks = 5; }), "rank 3"));
  CHECK(has(why([](auto& s) { s.pop_back(); }), "rank 0"));
  CHECK(has(why([](auto& s) { s.clear(); }), "no rank"));
  for (const Symmetry lie : {Symmetry::rotation, Symmetry::exclusive_or, Symmetry::reflection}) {
    auto tree = all_ranks(*find_algorithm(Collective::allreduce, "tree"), 4);
    for (Schedule& s : tree) s.symmetry = lie;
    CHECK(!prove(tree).ok);
  }
  for (const std::vector<int>& lie : {std::vector<int>{1}, {3, 1}, {4}}) {
    auto tree = all_ranks(*find_algorithm(Collective::allreduce, "tree"), 4);
    for (Schedule& s : tree) s.busiest = lie;
    CHECK(!prove(tree).ok);
  }
  // Every rank reduces before it sends: if sends wait for their receives, no rank progresses.
  Schedule selfish;
  selfish.size = 2;
  std::vector<Schedule> both{selfish, selfish};
  for (int r = 0; r < 2; ++r) {
    both[simulation::at(r)].rank = r;
    both[simulation::at(r)].rounds = {{reduce(1 - r, 0, r == 1)}, {send(1 - r, 0)}};
  }
  CHECK(!prove(both).ok);
  for (Schedule& s : both) s.rounds = {{s.rounds[0][0], s.rounds[1][0]}};
  CHECK(prove(both).ok);
  both[1].rounds[0][0].incoming_first = false;  // x0+x1 on rank 0, x1+x0 on rank 1
  CHECK(prove(both).why.find("operand order") != std::string::npos);
  for (Schedule& s : both) s.collective = Collective::broadcast;
  CHECK(prove(both).why.find("has no operation") != std::string::npos);
}

}  // namespace

int main() {
  every_built_in_is_proved();
  lowest_rank_comes_first();
  table_of_costs_holds();
  other_collectives_cost_what_they_say();
  registry_finds_and_keeps();
  reasons_name_the_place();
  std::puts("schedules: passed");
}
