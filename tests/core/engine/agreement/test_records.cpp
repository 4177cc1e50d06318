// Tests control messages: records are read as written, and damaged ones are refused. Sets and plans
// have distinct tags.
#include <cstring>
#include <string>

#include "check.hpp"
#include "engine/agreement/records.hpp"
#include "engine/tags.hpp"
#include "random.hpp"

using namespace ringcomm;

namespace {

Descriptor describe(const std::string& name, std::uint64_t count) {
  Descriptor d;
  d.dtype = static_cast<std::uint8_t>(DType::float32);
  d.count = count;
  std::strncpy(d.name, name.c_str(), sizeof d.name - 1);
  return d;
}

std::string text(Random& random) {
  std::string result(below(random, 50), ' ');
  for (char& c : result) c = static_cast<char>(random());
  return result;
}

Record any_record(Random& random) {
  const auto set = static_cast<std::uint32_t>(random());
  switch (below(random, 7)) {
    case 0: {
      ReadyRecord r{set, random(), {}};
      for (std::size_t i = below(random, 5); i > 0; --i) {
        Ready e;
        e.id = static_cast<std::uint32_t>(below(random, 2) * 77);
        if (e.id != 0) e.count = static_cast<std::uint32_t>(1 + below(random, 3));
        if (e.id == 0) e.signature = describe(e.name = text(random), random());
        e.extra.resize(below(random, 3), random());
        if (below(random, 2)) e.group = random(), e.group_size = 5;
        if (below(random, 2)) e.priority = static_cast<std::int32_t>(random());
        r.entries.push_back(e);
      }
      return r;
    }
    case 1: {
      VerdictRecord r{set, random(), {}};
      for (std::size_t i = below(random, 5); i > 0; --i) {
        Verdict v;
        for (std::size_t k = below(random, 4); k > 0; --k) {
          const bool known = below(random, 2);
          const auto ids = static_cast<std::uint32_t>(known ? 1 + below(random, 3) : 1);
          v.items.push_back({.name = known ? "" : text(random), .id = 3, .count = ids, .known = known});
          v.items.back().sizes.resize(below(random, 4), random());
          if (below(random, 2)) v.items.back().signature = describe("x", random());
        }
        v.forget.resize(below(random, 3), 9);
        v.placeholder_ranks.resize(below(random, 3), 4);
        if (below(random, 3) == 0) v.kind = Verdict::Kind::all_joined, v.last_joined = 7;
        if (below(random, 2)) v.kind = Verdict::Kind::fail, v.why = text(random), v.ranks = {1, 2}, v.early = true;
        r.verdicts.push_back(v);
      }
      return r;
    }
    case 2:
      return WithdrawRecord{set, text(random), text(random)};
    case 3:
      return LeaveRecord{below(random, 2) == 0, {{set, random(), {{text(random), random()}}, {3, 4}}, {1, 2, {}, {}}}};
    case 4:
      return JoinRecord{set};
    case 5:
      return BlockedRecord{set, random()};
    default:
      return AbortRecord{ErrorKind::peer_lost, text(random), {3, 4, 5}};
  }
}

void bytes_come_back(Random& random) {
  for (int trial = 0; trial < 2000; ++trial) {
    Bytes bytes, again;
    const std::size_t count = below(random, 4);
    for (std::size_t i = 0; i < count; ++i) encode(any_record(random), bytes);
    const auto records = decode(bytes);
    CHECK(records.size() == count);
    for (const Record& record : records) encode(record, again);
    CHECK(again == bytes);
  }
}

void damaged_bytes_are_refused(Random& random) {
  int refused = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Bytes bytes;
    encode(any_record(random), bytes);
    if (below(random, 2)) bytes.resize(below(random, bytes.size()) + (bytes.size() > 1 ? 0 : 1));
    for (std::size_t i = below(random, 4); i > 0 && !bytes.empty(); --i)
      bytes[below(random, bytes.size())] = std::byte(random());
    try {
      decode(bytes);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::transport);
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

void tags_are_apart() {
  for (const int limit : {32768, 1 << 20, 1 << 28, 2147483647}) {
    const TagMap map(limit);
    CHECK(map.sets() >= 60 && map.plans() >= 16 && map.width() >= 32);
    if (limit >= 1 << 20) CHECK(map.sets() >= 64 && map.plans() == 64);
    std::int64_t last = TagMap::kControlTags + TagMap::kServices - 1;
    for (int set = 0; set < map.sets(); ++set) {
      for (int s = -1; s < map.plans(); ++s) {
        TagStream stream = s < 0 ? map.of_set(set) : map.of_plan(set, s);
        CHECK(stream.next() == last + 1);
        last += stream.count();
      }
    }
    CHECK(last < limit);
  }
}

}  // namespace

int main() {
  Random random(20240608);
  bytes_come_back(random);
  damaged_bytes_are_refused(random);
  tags_are_apart();
  std::puts("messages: all passed");
  return 0;
}
