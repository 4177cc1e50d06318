// Tests agreement without a transport: in any order of submission, all ranks run the same
// operations; ids on both sides.
#include <algorithm>
#include <limits>

#include "agree_ranks.hpp"

using namespace ringcomm;

namespace {

// Submits the same names on every rank, `rounds` times, in a different order on each rank. Some are
// sent as ranges, and ranks read their mail at random times. Signatures change now and then. All
// ranks must run every operation in one order, whatever the cache evicts.
void random_orders(Random& random, int size, std::size_t names, std::size_t rounds, std::size_t cache) {
  Group group(size, below(random, 3) == 0 ? 0 : 64, cache);
  // The round of each rank for each name. A name's next round begins when the previous one has run.
  std::vector<std::vector<std::size_t>> round(group.ranks.size(), std::vector<std::size_t>(names, 0));
  std::vector<std::uint64_t> count(names * rounds);
  for (auto& c : count) c = 1 + below(random, 2) * 3;
  const std::size_t all = names * rounds * group.ranks.size();
  for (std::size_t submitted = 0; submitted < all;) {
    const std::size_t r = below(random, group.ranks.size());
    Rank& rank = group.ranks[r];
    std::vector<Ready> entries;
    for (std::size_t n = below(random, names), end = n + 1 + below(random, 2) * below(random, names);
         n < std::min(end, names); ++n) {
      const std::string name = "tensor." + std::to_string(n);
      if (round[r][n] == rounds || rank.pending.contains(name)) continue;
      append(entries, rank.submit(name, describe(name, count[n * rounds + round[r][n]])));
      ++round[r][n];
      ++submitted;
    }
    group.submit(r, entries);
    if (below(random, 20) == 0) group.coordinator.missing("tensor.0");  // a query changes nothing
    if (below(random, 20) == 0) group.coordinator.waiting(std::numeric_limits<std::int64_t>::max());
    if (below(random, 3) == 0) group.decide();
    if (!rank.mail.empty() && below(random, 2) == 0) rank.read_one();
  }
  group.decide();
  group.read_all();
  std::size_t ran = 0;
  for (const auto& bucket : group.ranks[0].ran) ran += bucket.size();
  CHECK(ran == names * rounds);
  for (const Rank& rank : group.ranks) {
    CHECK(rank.pending.empty() && rank.failed.empty());
    CHECK(rank.ran == group.ranks[0].ran);
    if (cache == 0) CHECK(rank.cached == 0);
  }
}

void the_cache_saves_names() {
  Group group(3, 1 << 20, 100);
  for (int step = 0; step < 5; ++step) {
    for (std::size_t r = 0; r < 3; ++r) {
      for (const char* name : {"a", "b", "c"}) group.submit(r, group.ranks[r].submit(name, describe(name, 4)));
    }
    CHECK(group.decide() == 1);  // one bucket
    group.read_all();
  }
  for (const Rank& rank : group.ranks) CHECK(rank.full == 3 && rank.cached == 12);
  CHECK(group.coordinator.ids() == 3);
}

// Sends consecutive ids as ranges or one by one, cut anywhere: the verdicts are equal.
void ranges_are_as_their_ids(Random& random) {
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t names = 1 + below(random, 30), size = 1 + below(random, 5);
    const std::size_t fusion = below(random, 2) * 64, cache = below(random, 2) ? 1000 : 1 + below(random, 40);
    Group together(static_cast<int>(size), fusion, cache), alone(static_cast<int>(size), fusion, cache);
    for (int step = 0; step < 6; ++step) {
      std::vector<std::size_t> next(size, 0);  // names that each rank has submitted
      while (std::any_of(next.begin(), next.end(), [&](std::size_t n) { return n < names; })) {
        const std::size_t r = below(random, size);
        std::vector<Ready> range;
        for (std::size_t n = 1 + below(random, names); n > 0 && next[r] < names; --n, ++next[r]) {
          const std::string name = "tensor." + std::to_string(next[r]);
          append(range, together.ranks[r].submit(name, describe(name, 4)));
          alone.submit(r, alone.ranks[r].submit(name, describe(name, 4)));
        }
        together.submit(r, range);
        if (below(random, 4) == 0) CHECK(together.decide() == alone.decide());
      }
      CHECK(together.decide() == alone.decide());
      for (std::size_t r = 0; r < size; ++r) {
        const auto record = [&](Group& group) {
          Bytes bytes;
          encode(VerdictRecord{0, 1, {group.ranks[r].mail.begin(), group.ranks[r].mail.end()}}, bytes);
          return bytes;
        };
        CHECK(record(together) == record(alone));
      }
      together.read_all();
      alone.read_all();
    }
  }
}

// Repeats an order of names: it costs one entry to the coordinator, and one back, wherever it is
// cut.
void an_order_that_comes_again(Random& random) {
  constexpr std::size_t kNames = 200;
  Group group(3, 1 << 20, 1000);
  for (int step = 0; step < 20; ++step) {
    std::size_t entries = 0;
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t n = 0; n < kNames;) {
        const std::size_t end = std::min(kNames, n + 1 + below(random, kNames));
        std::vector<Ready> together;
        for (; n < end; ++n) {
          const std::string name = "tensor." + std::to_string(n);
          append(together, group.ranks[r].submit(name, describe(name, 4)));
        }
        if (step > 0) CHECK(together.size() == 1);
        entries += together.size();
        group.submit(r, together);
      }
    }
    CHECK(step == 0 ? entries == 3 * kNames : entries < kNames / 2);
    const auto verdicts = group.coordinator.decide();
    CHECK(verdicts.size() == 1 && verdicts[0].items.size() == (step == 0 ? kNames : 1));
    for (Rank& rank : group.ranks) rank.mail.push_back(over_the_wire(VerdictRecord{0, 1, verdicts}).verdicts.at(0));
    group.read_all();
    for (const Rank& rank : group.ranks) CHECK(rank.ran.back().size() == kNames && rank.ran == group.ranks[0].ran);
  }
}

// Changes one operation of a range on one rank: it is matched with its own kind there, and the
// other operations run.
void one_of_many(Random& random) {
  const auto name_of = [](std::size_t n) { return "tensor." + std::to_string(n); };
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t names = 1 + below(random, 20), odd = below(random, names);
    Group group(3, 1 << 20, 1000);
    const auto submit = [&](std::size_t r, std::size_t first, std::size_t end) {
      std::vector<Ready> together;
      for (std::size_t n = first; n < end; ++n)
        append(together, group.ranks[r].submit(name_of(n), describe(name_of(n), 4)));
      group.submit(r, together);
    };
    for (std::size_t r = 0; r < 3; ++r) submit(r, 0, names);
    group.decide();
    group.read_all();

    const std::size_t kind = below(random, 3), strange = below(random, 3);
    for (const std::size_t r : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
      if (r != strange) {
        submit(r, 0, names);
        continue;
      }
      submit(r, 0, odd);
      submit(r, odd + 1, names);
      if (kind == 2) continue;
      Ready one = group.ranks[r].submit(name_of(odd), describe(name_of(odd), kind == 0 ? 5 : 4));  // another signature
      if (kind == 1) one.group = 7, one.group_size = 2;                                            // in a group
      group.submit(r, one);
    }
    if (kind == 2) {  // another rank withdraws it before the odd rank submits it
      CHECK(group.coordinator.missing(name_of(odd)) == std::vector<int>{10 + static_cast<int>(strange)});
      group.coordinator.withdraw((static_cast<int>(strange) + 1) % 3, name_of(odd), "gave up");
    }
    group.decide();
    group.read_all();
    for (const Rank& rank : group.ranks) {
      CHECK(rank.failed == std::vector<std::string>{name_of(odd)} && rank.pending.empty());
      std::size_t ran = 0;
      for (const auto& bucket : rank.ran) ran += bucket.size();
      CHECK(ran == 2 * names - 1);
    }
    for (Rank& rank : group.ranks) rank.failed_before_submit.clear();
    for (std::size_t r = 0; r < 3; ++r) submit(r, 0, names);
    CHECK(group.decide() >= 1);
    group.read_all();
    for (const Rank& rank : group.ranks) CHECK(rank.failed.size() == 1 && rank.pending.empty());
  }
}

// Submits a name with a new signature: it is sent completely once, and by its new id afterwards.
void a_changed_signature_is_cached_anew() {
  Group group(2, 1 << 20, 100);
  for (const std::uint64_t count : {4, 4, 9, 9, 9}) {
    for (std::size_t r = 0; r < 2; ++r) group.submit(r, group.ranks[r].submit("a", describe("a", count)));
    group.decide();
    group.read_all();
  }
  for (const Rank& rank : group.ranks) CHECK(rank.full == 2 && rank.cached == 3);
}

void forgotten_ids_go() {
  Group group(2, 0, 8);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = "once." + std::to_string(i);
    for (std::size_t r = 0; r < 2; ++r) group.submit(r, group.ranks[r].submit(name, describe(name, 1)));
    group.decide();
    group.read_all();
  }
  CHECK(group.coordinator.ids() <= 12);  // the capacity, and names evicted in the last verdicts
}

}  // namespace

int main() {
  Random random(20240607);
  for (int size = 1; size <= 9; ++size) {
    for (const std::size_t cache : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
      random_orders(random, size, 20, 20, cache);
    }
  }
  the_cache_saves_names();
  ranges_are_as_their_ids(random);
  an_order_that_comes_again(random);
  one_of_many(random);
  a_changed_signature_is_cached_anew();
  forgotten_ids_go();
  std::puts("agree: all passed");
  return 0;
}
