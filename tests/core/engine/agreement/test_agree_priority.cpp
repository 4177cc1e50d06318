// Tests that the coordinator orders operations by priority, and that every operation runs once.
#include <algorithm>

#include "agree_ranks.hpp"

using namespace ringcomm;

namespace {

constexpr std::size_t kBytes = 16;  // size of each operation

struct Submission {
  std::string name;
  std::vector<std::int32_t> priorities;  // by rank
  std::uint64_t group = 0;
  std::uint32_t group_size = 1;
};

// Makes single operations and groups of two, with random priorities that may differ between ranks.
std::vector<Submission> random_submissions(Random& random, std::size_t ranks) {
  std::vector<Submission> made;
  for (std::size_t i = 0, end = 1 + below(random, 12); i < end; ++i) {
    const std::uint32_t size = below(random, 3) == 0 ? 2 : 1;
    for (std::uint32_t member = 0; member < size; ++member) {
      Submission& one = made.emplace_back(Submission{"n" + std::to_string(made.size()), {}, i + 1, size});
      for (std::size_t r = 0; r < ranks; ++r) one.priorities.push_back(static_cast<std::int32_t>(below(random, 5)) - 2);
    }
  }
  return made;
}

// Submits on all ranks, in a random order on each, and decides with a random credit now and then.
// No operation runs while one of higher priority that was ready waits. The priority of an operation
// is the highest of its ranks, and of its group.
void higher_first(Random& random) {
  for (int trial = 0; trial < 500; ++trial) {
    const std::size_t ranks = 1 + below(random, 5);
    Group group(static_cast<int>(ranks), below(random, 2) * 64, below(random, 2) * 100);
    const std::vector<Submission> all = random_submissions(random, ranks);
    std::map<std::string, std::int32_t> priority;
    std::map<std::uint64_t, std::int32_t> of_group;
    for (const Submission& one : all) {
      const std::int32_t highest = std::ranges::max(one.priorities);
      const auto [entry, fresh] = of_group.try_emplace(one.group, highest);
      entry->second = std::max(entry->second, highest);
    }
    for (const Submission& one : all) priority[one.name] = of_group[one.group];
    std::map<std::uint64_t, std::size_t> submissions;  // number by all ranks, for each group
    std::set<std::string> decided;
    std::vector<std::vector<std::size_t>> orders(ranks, std::vector<std::size_t>(all.size()));
    for (auto& order : orders) {
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
    }
    const auto is_ready = [&](const Submission& one) { return submissions[one.group] == ranks * one.group_size; };
    const auto decide = [&](std::size_t limit) {
      for (Verdict& verdict : group.coordinator.decide(limit)) {
        for (Rank& rank : group.ranks) rank.mail.push_back(verdict);
      }
      const std::size_t before = group.ranks[0].ran.size();
      group.read_all();
      std::size_t bytes = 0;
      std::int32_t lowest = 100;
      for (std::size_t i = before; i < group.ranks[0].ran.size(); ++i) {
        for (const std::string& name : group.ranks[0].ran[i]) {
          CHECK(decided.insert(name).second);
          lowest = std::min(lowest, priority[name]);
          bytes += kBytes;
        }
      }
      bool prioritised = false;
      for (const Submission& one : all) {
        if (!is_ready(one) || decided.contains(one.name)) continue;
        CHECK(priority[one.name] <= lowest);
        prioritised = true;
      }
      if (prioritised) CHECK(limit < ~std::size_t{0} && bytes <= limit + 2 * kBytes);
      CHECK(group.coordinator.waiting(std::numeric_limits<std::int64_t>::max()).size() <= all.size() - decided.size());
    };
    for (std::size_t left = ranks * all.size(); left > 0;) {
      const std::size_t r = below(random, ranks);
      if (orders[r].empty()) continue;
      const Submission& one = all[orders[r].back()];
      orders[r].pop_back();
      Ready ready = group.ranks[r].submit(one.name, describe(one.name, kBytes / 4));
      ready.priority = one.priorities[r];
      if (one.group_size > 1) {
        ready.group = one.group;
        ready.group_size = one.group_size;
      }
      group.submit(r, ready);
      ++submissions[one.group];
      --left;
      if (below(random, 4) == 0) decide(below(random, 3) * 2 * kBytes);
    }
    for (int call = 0; decided.size() < all.size(); ++call) {
      CHECK(call < 1000);
      decide(1 + below(random, 100));
    }
    for (const Rank& rank : group.ranks) CHECK(rank.pending.empty() && rank.ran == group.ranks[0].ran);
  }
}

// Operations that wait for ones of higher priority are not reported as stalled or deadlocked, can
// be withdrawn, and run before a join ends.
void while_they_wait() {
  const auto submit = [](Group& group, const std::string& name, std::int32_t priority, std::uint32_t group_size = 1) {
    for (std::size_t r = 0; r < 2; ++r) {
      Ready ready = group.ranks[r].submit(name, describe(name, kBytes / 4));
      ready.priority = priority;
      ready.group = ready.group_size = group_size;
      group.submit(r, ready);
    }
  };
  Group group(2, 0, 16);
  submit(group, "low", -1);
  submit(group, "high", 1);
  CHECK(group.coordinator.decide(0).empty());
  CHECK(group.coordinator.waiting(std::numeric_limits<std::int64_t>::max()).empty());
  for (int rank = 0; rank < 2; ++rank) group.coordinator.block(rank, 0);  // the callers wait for these two
  CHECK(group.coordinator.decide(0).empty());
  for (int rank = 0; rank < 2; ++rank) group.coordinator.join(rank);
  CHECK(group.coordinator.decide(0).empty());
  const auto first = group.coordinator.decide(1), second = group.coordinator.decide(1);
  CHECK(first.size() == 1 && first[0].items[0].name == "high");
  CHECK(second.size() == 2 && second[0].items[0].name == "low" && second[1].kind == Verdict::Kind::all_joined);

  Group other(2, 0, 16);
  submit(other, "single", 5);
  submit(other, "a", 3, 2);
  submit(other, "b", 3, 2);
  CHECK(other.coordinator.decide(0).empty());
  other.coordinator.withdraw(0, "single", "gave up");
  other.coordinator.withdraw(1, "a", "gave up");
  const auto failed = other.coordinator.decide(0);
  CHECK(failed.size() == 2 && failed[0].kind == Verdict::Kind::fail && !failed[0].early);
  for (Rank& rank : other.ranks) {
    for (const Verdict& verdict : failed) rank.mail.push_back(verdict);
  }
  other.read_all();
  CHECK(other.coordinator.decide(100).empty());  // "b" waits for its group again
  submit(other, "a", 0, 2);
  const auto verdicts = other.coordinator.decide(100);
  CHECK(verdicts.size() == 2);
}

}  // namespace

int main() {
  Random random(20261128);
  higher_first(random);
  while_they_wait();
  std::puts("agreement by priority: passed");
}
