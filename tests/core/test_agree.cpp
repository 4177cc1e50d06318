// Agreement without a transport: the coordinator, the cache on both sides, and what travels between them.
#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "check.hpp"
#include "engine/agree.hpp"
#include "engine/records.hpp"
#include "random.hpp"

using namespace ringcomm;

namespace {

Descriptor describe(const std::string& name, std::uint64_t count, Collective collective = Collective::allreduce) {
  Descriptor d;
  d.collective = static_cast<std::uint8_t>(collective);
  d.dtype = static_cast<std::uint8_t>(DType::float32);
  d.op = static_cast<std::uint8_t>(Op::sum);
  d.count = count;
  std::strncpy(d.name, name.c_str(), sizeof d.name - 1);
  return d;
}

std::vector<int> numbers(int size, int first = 0) {
  std::vector<int> result;
  for (int i = 0; i < size; ++i) result.push_back(first + i);
  return result;
}

// One rank as the protocol sees it: its cache, and how many verdicts it has heard. Verdicts wait in `mail` until read.
struct Rank {
  KnownNames known;
  std::uint64_t heard = 0;
  std::deque<Verdict> mail;
  std::map<std::string, Descriptor> pending;
  std::set<std::string> doomed;
  std::vector<std::vector<std::string>> ran;
  std::vector<std::string> failed;
  std::size_t full = 0, cached = 0;  // entries sent

  Ready submit(const std::string& name, const Descriptor& signature, std::vector<std::uint64_t> extra = {}) {
    CHECK(pending.emplace(name, signature).second);
    Ready ready;
    ready.id = known.find(name, signature);
    if (ready.id == 0) {
      ready.name = name;
      ready.signature = signature;
      ++full;
    } else {
      ++cached;
    }
    ready.extra = std::move(extra);
    return ready;
  }

  void read_one() {
    const Verdict verdict = std::move(mail.front());
    mail.pop_front();
    ++heard;
    std::vector<std::pair<std::uint32_t, const VerdictItem*>> each;
    for (const VerdictItem& item : verdict.items) {
      for (std::uint32_t i = 0; i < item.count; ++i) each.emplace_back(item.id + i, &item);
    }
    std::vector<std::string> names;
    for (const auto& [id, of] : each) {
      const VerdictItem& item = *of;
      const std::string name = item.known ? known.name_of(id) : item.name;
      names.push_back(name);
      const auto mine = pending.find(name);
      if (verdict.kind == Verdict::Kind::fail) {
        if (mine == pending.end()) {
          CHECK(verdict.early);
          doomed.insert(name);
        } else {
          pending.erase(mine);
        }
        failed.push_back(name);
        continue;
      }
      CHECK(mine != pending.end());
      if (id != 0 && !item.known) known.learn(id, name, mine->second);
      pending.erase(mine);
    }
    if (verdict.kind == Verdict::Kind::run) ran.push_back(names);
    for (const std::uint32_t id : verdict.forget) known.forget(id);
  }
};

// What goes over the wire is what arrives.
template <class R>
R over_the_wire(const R& record) {
  Bytes bytes;
  encode(record, bytes);
  std::vector<Record> records = decode(bytes);
  CHECK(records.size() == 1);
  return std::get<R>(std::move(records[0]));
}

struct Group {
  std::vector<Rank> ranks;
  Coordinator coordinator;

  Group(int size, std::size_t fusion, std::size_t cache)
      : ranks(static_cast<std::size_t>(size)), coordinator(numbers(size, 10), fusion, cache) {}
  int size() const { return static_cast<int>(ranks.size()); }

  void submit(std::size_t rank, const Ready& ready) { submit(rank, std::vector{ready}); }
  void submit(std::size_t rank, const std::vector<Ready>& entries) {
    const auto record = over_the_wire(ReadyRecord{0, ranks[rank].heard, entries});
    for (const Ready& entry : record.entries) coordinator.ready(static_cast<int>(rank), record.heard, entry);
  }
  std::size_t decide() {
    const auto verdicts = coordinator.decide();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const Verdict& verdict : verdicts) {
        VerdictRecord record{0, 1, {seen_by(verdict, static_cast<int>(rank), size())}};
        ranks[rank].mail.push_back(over_the_wire(record).verdicts.at(0));
      }
    }
    return verdicts.size();
  }
  void read_all() {
    for (Rank& rank : ranks) {
      while (!rank.mail.empty()) rank.read_one();
    }
  }
};

// Every rank submits the same names, rounds times, in an order of its own, some of them in a row and told together, and
// reads its mail when it likes. Signatures change now and then. All ranks must run every operation, in one order,
// whatever the cache forgets.
void random_orders(Random& random, int size, std::size_t names, std::size_t rounds, std::size_t cache) {
  Group group(size, below(random, 3) == 0 ? 0 : 64, cache);
  // The round in which each rank is with each name; a name's next round comes when the last has run.
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
    if (below(random, 20) == 0) group.coordinator.missing("tensor.0");  // a question changes nothing
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

// Names in an order that comes again cost one entry on the way there, and one on the way back, wherever it is cut.
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

// One of many told together may be anything else on another rank: it meets its own there, and the others run.
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
    if (kind == 2) {  // given up by another before the strange one had it
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
    for (Rank& rank : group.ranks) rank.doomed.clear();
    for (std::size_t r = 0; r < 3; ++r) submit(r, 0, names);
    CHECK(group.decide() >= 1);
    group.read_all();
    for (const Rank& rank : group.ranks) CHECK(rank.failed.size() == 1 && rank.pending.empty());
  }
}

// A name with a new signature travels whole once, and by its new id from then on.
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
  CHECK(group.coordinator.ids() <= 12);  // the capacity, and what was forgotten in the last verdicts
}

// A mismatch fails that name on every rank, says what each gave, and the next operation of that name works.
void mismatches(Random& random) {
  for (int trial = 0; trial < 200; ++trial) {
    const int size = 2 + static_cast<int>(below(random, 5));
    Group group(size, 64, 16);
    const std::size_t odd = below(random, static_cast<std::size_t>(size));
    for (int before = static_cast<int>(below(random, 2)); before > 0; --before) {  // perhaps it is cached by now
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
  CHECK(group.decide() == 0);  // b is ready everywhere, but its group is not
  submit(1, "a", 7, 2);
  CHECK(group.decide() == 1);
  group.read_all();
  CHECK(group.ranks[0].ran[0].size() == 2);

  submit(0, "a", 7, 2);  // grouped here, alone there
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
      {{3, 1, 1, 1}, {4, 1, 1, 1}, {0}},         // the sum
      {{3}, {4}, {0}},                           // not a multiple
      {{3}, {3, 1, 2}, {0}},                     // their number
      {{3}, {2, ~std::uint64_t{0}, 2, 1}, {0}},  // overflows to the right sum
  };
  for (const auto& extras : wrong) {
    after = everyone(Collective::alltoall, extras);
    CHECK(after[0].mail[0].kind == Verdict::Kind::fail && after[0].mail[0].why.find("rank 11") != std::string::npos);
    group.read_all();
  }
}

// An operation that one rank gave up fails once on every rank: also where it is submitted later, or was on its way.
void withdrawal() {
  for (const bool crossing : {false, true}) {
    Group group(2, 64, 16);
    group.submit(0, group.ranks[0].submit("x", describe("x", 4)));
    CHECK(group.coordinator.missing("x") == std::vector<int>{11});
    group.coordinator.withdraw(0, "x", "gave up");
    if (crossing) {
      group.submit(1, group.ranks[1].submit("x", describe("x", 4)));  // it has not heard the verdict
      CHECK(group.decide() == 1);
      group.read_all();
      CHECK(group.ranks[1].doomed.empty());
    } else {
      CHECK(group.decide() == 1);
      group.read_all();
      CHECK(group.ranks[1].doomed.contains("x"));  // it will fail there without being sent
    }
    group.coordinator.withdraw(0, "x", "gave up again");  // nothing is pending
    CHECK(group.decide() == 0);
    for (std::size_t r = 0; r < 2; ++r) group.submit(r, group.ranks[r].submit("x", describe("x", 4)));
    CHECK(group.decide() == 1);
    group.read_all();
    for (const Rank& rank : group.ranks) CHECK(rank.failed.size() == 1 && rank.ran.size() == 1);
  }
}

// Ranks that have joined count as ready, are listed as absent, and are not missed; when all have, one verdict says so.
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
          std::vector<int> absent = joined;
          std::sort(absent.begin(), absent.end());
          CHECK(verdicts[0].absent == absent && verdicts[0].items[0].signature.has_value() == !absent.empty());
          for (int rank = 0; rank < size; ++rank) {
            Rank& reader = group.ranks[static_cast<std::size_t>(rank)];
            if (contains(absent, rank)) reader.pending.emplace("x", verdicts[0].items[0].signature.value());
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

// What was submitted before the last joined runs first; tensors that other ranks are absent from are not fused.
void joining_keeps_order() {
  Group group(3, 1 << 20, 16);
  for (const char* name : {"a", "b"}) group.submit(0, group.ranks[0].submit(name, describe(name, 4)));
  group.submit(1, group.ranks[1].submit("b", describe("b", 4)));
  for (const int rank : {1, 0, 2}) group.coordinator.join(rank);
  const auto verdicts = group.coordinator.decide();
  CHECK(verdicts.size() == 3 && verdicts[2].kind == Verdict::Kind::all_joined && verdicts[2].last_joined == 12);
  for (const Verdict& verdict : {verdicts[0], verdicts[1]}) {
    CHECK(verdict.items.size() == 1);
    CHECK(verdict.absent == (verdict.items[0].name == "a" ? std::vector<int>{1, 2} : std::vector<int>{2}));
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
  CHECK(verdicts[0].ranks == std::vector<int>{12} && verdicts[0].absent == std::vector<int>{2});
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
  for (int size = 1; size <= 9; ++size) {
    for (const std::size_t cache : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
      random_orders(random, size, 20, 20, cache);
    }
  }
  the_cache_saves_names();
  an_order_that_comes_again(random);
  one_of_many(random);
  a_changed_signature_is_cached_anew();
  forgotten_ids_go();
  mismatches(random);
  groups_run_together();
  fusion_keeps_its_limit(random);
  sizes_and_splits();
  withdrawal();
  joining(random);
  joining_keeps_order();
  a_joined_root();
  nothing_after_the_end();
  std::puts("agree: all passed");
  return 0;
}
