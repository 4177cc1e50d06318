// Tests the coordinator's decisions, without a transport: to run operations together, to fail one
// and why, to end a join.
#include <algorithm>

#include "agree_ranks.hpp"

using namespace ringcomm;

namespace {

// Submits a mismatch: that name fails on every rank, the error gives each rank's value, and the
// next operation of that name works.
void mismatches(Random& random) {
  for (int trial = 0; trial < 200; ++trial) {
    const int size = 2 + static_cast<int>(below(random, 5));
    Group group(size, 64, 16);
    const std::size_t odd = below(random, static_cast<std::size_t>(size));
    // after these, the name may be cached
    for (int before = static_cast<int>(below(random, 2)); before > 0; --before) {
      for (std::size_t r = 0; r < group.ranks.size(); ++r)
        group.submit(r, group.ranks[r].submit("x", describe("x", 4)));
      group.decide();
      group.read_all();
    }
    for (std::size_t r = 0; r < group.ranks.size(); ++r) {
      Descriptor d = describe("x", 4);
      if (r == odd) d.dtype = static_cast<std::uint8_t>(DType::int32);
      group.submit(r, group.ranks[r].submit("x", d));
    }
    const auto verdicts = group.coordinator.decide();
    CHECK(verdicts.size() == 1 && verdicts[0].kind == Verdict::Kind::fail && verdicts[0].error == ErrorKind::mismatch);
    const std::string& why = verdicts[0].why;
    CHECK(why.find('x') != std::string::npos && why.find(std::to_string(10 + odd)) != std::string::npos);
    CHECK(why.find("int32") != std::string::npos && why.find("float32") != std::string::npos);
    for (Rank& rank : group.ranks) rank.mail.push_back(verdicts[0]);
    group.read_all();
    for (std::size_t r = 0; r < group.ranks.size(); ++r) group.submit(r, group.ranks[r].submit("x", describe("x", 9)));
    CHECK(group.decide() == 1);
    group.read_all();
    for (const Rank& rank : group.ranks)
      CHECK(rank.failed.size() == 1 && rank.ran.back() == std::vector<std::string>{"x"});
  }
}

void groups_run_together() {
  Group group(2, 1 << 20, 16);
  const auto submit = [&](std::size_t r, const char* name, std::uint64_t number, std::uint32_t size) {
    Ready ready = group.ranks[r].submit(name, describe(name, 4));
    ready.group = number;
    ready.group_size = size;
    group.submit(r, ready);
  };
  submit(0, "a", 7, 2);
  submit(0, "b", 7, 2);
  submit(1, "b", 7, 2);
  CHECK(group.decide() == 0);  // b is ready on all ranks, but its group is not
  submit(1, "a", 7, 2);
  CHECK(group.decide() == 1);
  group.read_all();
  CHECK(group.ranks[0].ran[0].size() == 2);

  submit(0, "a", 7, 2);  // grouped on this rank, single on the other
  submit(0, "b", 7, 2);
  submit(1, "a", 0, 1);
  CHECK(group.decide() == 1);
  group.read_all();
  CHECK(group.ranks[0].failed == std::vector<std::string>{"a"});
  submit(1, "b", 0, 1);
  CHECK(group.decide() == 1);
  group.read_all();
  CHECK(group.ranks[1].failed.size() == 2 && group.ranks[0].pending.empty());
}

void fusion_keeps_its_limit(Random& random) {
  for (int trial = 0; trial < 100; ++trial) {
    const std::size_t limit = 40 + below(random, 100);
    Group group(2, limit, below(random, 2) * 100);
    std::map<std::string, std::size_t> bytes;
    for (int i = 0; i < 60; ++i) {
      const std::string name = "n" + std::to_string(i);
      Descriptor d = describe(name, below(random, 20));
      d.op = static_cast<std::uint8_t>(below(random, 2) ? Op::sum : Op::max);
      bytes[name] = d.count * 4;
      for (std::size_t r = 0; r < 2; ++r) group.submit(r, group.ranks[r].submit(name, d));
    }
    group.decide();
    group.read_all();
    std::size_t seen = 0;
    for (const auto& bucket : group.ranks[0].ran) {
      std::size_t sum = 0;
      for (const std::string& name : bucket) sum += bytes[name];
      CHECK(bucket.size() == 1 || sum <= limit);
      seen += bucket.size();
    }
    CHECK(seen == 60);
  }
}

void sizes_and_splits() {
  Group group(3, 64, 16);
  const auto everyone = [&](Collective collective, const std::vector<std::vector<std::uint64_t>>& extras) {
    for (std::size_t r = 0; r < 3; ++r)
      group.submit(r, group.ranks[r].submit("x", describe("x", 2, collective), extras[r]));
    group.decide();
    return group.ranks;
  };
  auto after = everyone(Collective::allgather, {{5}, {0}, {7}});
  CHECK((after[2].mail[0].items[0].sizes == std::vector<std::uint64_t>{5, 0, 7}));
  group.read_all();
  after = everyone(Collective::alltoall, {{3, 1, 0, 2}, {4, 4, 0, 0}, {0, 0, 0, 0}});
  CHECK((after[0].mail[0].items[0].sizes == std::vector<std::uint64_t>{1, 4, 0}));
  CHECK((after[2].mail[0].items[0].sizes == std::vector<std::uint64_t>{2, 0, 0}));
  group.read_all();
  after = everyone(Collective::alltoall, {{6}, {6, 2, 2, 2}, {6}});
  CHECK((after[1].mail[0].items[0].sizes == std::vector<std::uint64_t>{2}));
  group.read_all();
  const std::vector<std::vector<std::vector<std::uint64_t>>> wrong = {
      {{3, 1, 1, 1}, {4, 1, 1, 1}, {0}},         // wrong sum
      {{3}, {4}, {0}},                           // not a multiple
      {{3}, {3, 1, 2}, {0}},                     // wrong length
      {{3}, {2, ~std::uint64_t{0}, 2, 1}, {0}},  // overflows to the correct sum
  };
  for (const auto& extras : wrong) {
    after = everyone(Collective::alltoall, extras);
    CHECK(after[0].mail[0].kind == Verdict::Kind::fail && after[0].mail[0].why.find("rank 11") != std::string::npos);
    group.read_all();
  }
}

// Withdraws an operation on one rank: it fails once on every rank, also if it is submitted later or
// its message is in flight.
void withdrawal() {
  for (const bool crossing : {false, true}) {
    Group group(2, 64, 16);
    group.submit(0, group.ranks[0].submit("x", describe("x", 4)));
    CHECK(group.coordinator.missing("x") == std::vector<int>{11});
    group.coordinator.withdraw(0, "x", "gave up");
    if (crossing) {
      group.submit(1, group.ranks[1].submit("x", describe("x", 4)));  // it has not read the verdict
      CHECK(group.decide() == 1);
      group.read_all();
      CHECK(group.ranks[1].failed_before_submit.empty());
    } else {
      CHECK(group.decide() == 1);
      group.read_all();
      CHECK(group.ranks[1].failed_before_submit.contains("x"));  // the next submission fails there without a message
    }
    group.coordinator.withdraw(0, "x", "gave up again");  // nothing is pending
    CHECK(group.decide() == 0);
    for (std::size_t r = 0; r < 2; ++r) group.submit(r, group.ranks[r].submit("x", describe("x", 4)));
    CHECK(group.decide() == 1);
    group.read_all();
    for (const Rank& rank : group.ranks) CHECK(rank.failed.size() == 1 && rank.ran.size() == 1);
  }
}

// Joins ranks: they count as ready, are listed as joined, and are not reported as missing. Once all
// have joined, one verdict states it.
void joining(Random& random) {
  for (int trial = 0; trial < 300; ++trial) {
    const int size = 1 + static_cast<int>(below(random, 6));
    Group group(size, below(random, 2) * 64, below(random, 2) * 16);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<int> order = numbers(size), joined;
      std::shuffle(order.begin(), order.end(), random);
      for (const int leaver : order) {
        for (std::size_t n = below(random, 3); n > 0; --n) {
          for (int rank = 0; rank < size; ++rank) {
            if (std::find(joined.begin(), joined.end(), rank) != joined.end()) continue;
            const auto r = static_cast<std::size_t>(rank);
            CHECK(std::ranges::count(group.coordinator.missing("x"), 10 + rank) == 1);
            CHECK(group.coordinator.decide().empty());
            group.submit(r, group.ranks[r].submit("x", describe("x", 4)));
          }
          const auto verdicts = group.coordinator.decide();
          CHECK(verdicts.size() == 1 && verdicts[0].kind == Verdict::Kind::run);
          std::vector<int> placeholder_ranks = joined;
          std::sort(placeholder_ranks.begin(), placeholder_ranks.end());
          CHECK(verdicts[0].placeholder_ranks == placeholder_ranks &&
                verdicts[0].items[0].signature.has_value() == !placeholder_ranks.empty());
          for (int rank = 0; rank < size; ++rank) {
            Rank& reader = group.ranks[static_cast<std::size_t>(rank)];
            if (contains(placeholder_ranks, rank)) reader.pending.emplace("x", verdicts[0].items[0].signature.value());
            reader.mail.push_back(over_the_wire(VerdictRecord{0, 1, verdicts}).verdicts.at(0));
          }
          group.read_all();
        }
        group.coordinator.join(leaver);
        joined.push_back(leaver);
        CHECK(group.coordinator.missing("y").size() == group.ranks.size() - joined.size());
      }
      const auto verdicts = group.coordinator.decide();
      CHECK(verdicts.size() == 1 && verdicts[0].kind == Verdict::Kind::all_joined);
      CHECK(verdicts[0].last_joined == 10 + order.back());
      for (Rank& rank : group.ranks) rank.mail.push_back(over_the_wire(VerdictRecord{0, 1, verdicts}).verdicts.at(0));
      group.read_all();
      CHECK(group.coordinator.missing("x").size() == group.ranks.size());
    }
  }
}

// Operations submitted before the last rank joined run first. Tensors with different joined ranks
// are not fused.
void joining_keeps_order() {
  Group group(3, 1 << 20, 16);
  for (const char* name : {"a", "b"}) group.submit(0, group.ranks[0].submit(name, describe(name, 4)));
  group.submit(1, group.ranks[1].submit("b", describe("b", 4)));
  for (const int rank : {1, 0, 2}) group.coordinator.join(rank);
  const auto verdicts = group.coordinator.decide();
  CHECK(verdicts.size() == 3 && verdicts[2].kind == Verdict::Kind::all_joined && verdicts[2].last_joined == 12);
  for (const Verdict& verdict : {verdicts[0], verdicts[1]}) {
    CHECK(verdict.items.size() == 1);
    CHECK(verdict.placeholder_ranks == (verdict.items[0].name == "a" ? std::vector<int>{1, 2} : std::vector<int>{2}));
  }
}

void a_joined_root() {
  Group group(3, 64, 16);
  Descriptor d = describe("x", 4, Collective::broadcast);
  d.root = 2;
  group.coordinator.join(2);
  for (const std::size_t r : {0, 1}) group.submit(r, group.ranks[r].submit("x", d));
  const auto verdicts = group.coordinator.decide();
  CHECK(verdicts.size() == 1 && verdicts[0].kind == Verdict::Kind::fail && verdicts[0].error == ErrorKind::joined);
  CHECK(verdicts[0].ranks == std::vector<int>{12} && verdicts[0].placeholder_ranks == std::vector<int>{2});
}

void nothing_after_the_end() {
  Group group(2, 64, 16);
  group.submit(0, group.ranks[0].submit("x", describe("x", 4)));
  group.coordinator.end();
  group.submit(1, group.ranks[1].submit("x", describe("x", 4)));
  CHECK(group.decide() == 0);
}

}  // namespace

int main() {
  Random random(20240607);
  mismatches(random);
  groups_run_together();
  fusion_keeps_its_limit(random);
  sizes_and_splits();
  withdrawal();
  joining(random);
  joining_keeps_order();
  a_joined_root();
  nothing_after_the_end();
  std::puts("agree, verdicts: all passed");
  return 0;
}
