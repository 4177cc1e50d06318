// Tests matching: random posts, arrivals, probes and cancellations against a naive implementation
// of the rule.
#include "p2p/matching.hpp"

#include <string>

#include "check.hpp"
#include "random.hpp"

using namespace ringcomm;

namespace {

struct Naive {
  struct Receive {
    int source, tag, number;
  };
  std::vector<Receive> posted;
  std::vector<std::pair<Envelope, int>> unexpected;

  int arrive(const Envelope& envelope) {  // -1: stored
    for (std::size_t i = 0; i < posted.size(); ++i) {
      const Receive one = posted[i];
      if ((one.source == kAnySource || one.source == envelope.source) &&
          (one.tag == kAnyTag || one.tag == envelope.tag)) {
        posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(i));
        return one.number;
      }
    }
    return -1;
  }
  int first(int source, int tag) const {
    for (std::size_t i = 0; i < unexpected.size(); ++i) {
      const Envelope& one = unexpected[i].first;
      if ((source == kAnySource || source == one.source) && (tag == kAnyTag || tag == one.tag)) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }
};

void agrees_with_the_naive_one(std::uint64_t seed) {
  Random random(seed);
  Matching<int, int> matching;
  Naive naive;
  const std::size_t sources = 1 + below(random, 4), tags = 1 + below(random, 4);
  const auto source = [&] { return static_cast<int>(below(random, sources)); };
  const auto tag = [&] { return static_cast<int>(below(random, tags)); };
  for (int number = 0; number < 600; ++number) {
    const int from = below(random, 3) == 0 ? kAnySource : source(), of = below(random, 3) == 0 ? kAnyTag : tag();
    switch (below(random, 5)) {
      case 0:
      case 1: {
        const Envelope envelope{source(), tag(), 8};
        const auto got = matching.arrive(envelope);
        CHECK(got.value_or(-1) == naive.arrive(envelope));
        if (!got) {
          matching.keep(envelope, number);
          naive.unexpected.emplace_back(envelope, number);
        }
        break;
      }
      case 2:
      case 3: {
        const auto got = matching.want(from, of);
        const int expected = naive.first(from, of);
        CHECK(got.has_value() == (expected >= 0));
        if (got) {
          CHECK(*got == naive.unexpected[static_cast<std::size_t>(expected)].second);
          naive.unexpected.erase(naive.unexpected.begin() + expected);
        } else {
          matching.post(from, of, number);
          naive.posted.push_back({from, of, number});
        }
        break;
      }
      default: {
        const Envelope* const seen = matching.probe(from, of);
        const int expected = naive.first(from, of);
        CHECK((seen != nullptr) == (expected >= 0));
        if (seen) CHECK(seen->tag == naive.unexpected[static_cast<std::size_t>(expected)].first.tag);
        if (naive.posted.empty()) break;
        const auto one = naive.posted.begin() + static_cast<std::ptrdiff_t>(below(random, naive.posted.size()));
        CHECK(matching.cancel(one->number));
        CHECK(!matching.cancel(one->number));
        naive.posted.erase(one);
      }
    }
    CHECK(matching.posted() == naive.posted.size());
    CHECK(matching.unexpected().size() == naive.unexpected.size());
  }
}

}  // namespace

int main() {
  for (std::uint64_t seed = 0; seed < (kSanitized ? 20 : 200); ++seed) agrees_with_the_naive_one(seed);
  return 0;
}
