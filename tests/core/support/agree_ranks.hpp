// The ranks of a set as the agreement sees them, without a transport: only the records that they
// exchange.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "engine/agreement/coordinator.hpp"
#include "engine/agreement/known_names.hpp"
#include "engine/agreement/records.hpp"
#include "random.hpp"

namespace ringcomm {

inline Descriptor describe(const std::string& name, std::uint64_t count,
                           Collective collective = Collective::allreduce) {
  Descriptor d;
  d.collective = static_cast<std::uint8_t>(collective);
  d.dtype = static_cast<std::uint8_t>(DType::float32);
  d.op = static_cast<std::uint8_t>(Op::sum);
  d.count = count;
  std::strncpy(d.name, name.c_str(), sizeof d.name - 1);
  return d;
}

inline std::vector<int> numbers(int size, int first = 0) {
  std::vector<int> result;
  for (int i = 0; i < size; ++i) result.push_back(first + i);
  return result;
}

// The protocol state of one rank: its cache, and the number of verdicts that it has read. Verdicts
// wait in `mail`.
struct Rank {
  KnownNames known;
  std::uint64_t read = 0;
  std::deque<Verdict> mail;
  std::map<std::string, Descriptor> pending;
  std::set<std::string> failed_before_submit;
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
    ++read;
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
          failed_before_submit.insert(name);
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

// Returns the record after encoding and decoding.
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
    const auto record = over_the_wire(ReadyRecord{0, ranks[rank].read, entries});
    for (const Ready& entry : record.entries) coordinator.ready(static_cast<int>(rank), record.read, entry);
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

}  // namespace ringcomm
