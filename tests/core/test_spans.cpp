// Ids that ranks have ready together, in a row, against ids one by one.
#include <map>
#include <set>

#include "check.hpp"
#include "engine/spans.hpp"
#include "random.hpp"

using namespace ringcomm;

namespace {

// What is told, taken out one by one, and complete.
void ranges_are_as_their_ids(Random& random) {
  for (int trial = 0; trial < 500; ++trial) {
    const std::size_t ranks = 1 + below(random, 5);
    const std::uint32_t ids = 1 + static_cast<std::uint32_t>(below(random, 60));
    Spans spans(ranks);
    std::map<std::uint32_t, std::set<std::size_t>> told;
    std::set<std::uint32_t> complete, taken;
    for (int i = 0; i < 100; ++i) {
      const auto first = 1 + static_cast<std::uint32_t>(below(random, ids));
      if (below(random, 10) == 0) {
        const auto span = spans.take(first);
        CHECK(span.has_value() == told.contains(first));
        if (!span) continue;
        CHECK(span->ids.first == first && span->ids.count == 1 && span->count == static_cast<int>(told[first].size()));
        for (std::size_t r = 0; r < ranks; ++r) CHECK((span->here[r] != 0) == told[first].contains(r));
        told.erase(first);
        taken.insert(first);
        continue;
      }
      const std::size_t r = below(random, ranks);
      IdRange range{first, 0};
      while (range.first + range.count <= ids && below(random, 8) != 0) {
        const std::uint32_t id = range.first + range.count;
        if (complete.contains(id) || taken.contains(id) || (told.contains(id) && told[id].contains(r))) break;
        ++range.count;
      }
      std::vector<IdRange> now;
      spans.tell(static_cast<int>(r), range, i, now);
      for (std::uint32_t id = first; id - first < range.count; ++id) {
        told[id].insert(r);
        if (told[id].size() < ranks) continue;
        told.erase(id);
        complete.insert(id);
        CHECK(!now.empty());
      }
      for (const IdRange done : now) {
        for (std::uint32_t id = done.first; id - done.first < done.count; ++id) CHECK(complete.contains(id));
      }
    }
    CHECK(spans.empty() == told.empty());
    std::size_t left = 0;
    for (const auto& span : spans.take_since(1000)) left += span.ids.count;
    CHECK(left == told.size() && spans.empty());
  }
}

}  // namespace

int main() {
  Random random(20240607);
  ranges_are_as_their_ids(random);
  std::puts("spans: all passed");
  return 0;
}
