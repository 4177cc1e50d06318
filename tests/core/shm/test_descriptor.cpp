// Tests the sentence about a disagreement: empty if ranks agree; otherwise it names the call, each
// rank's value, and the fix.
#include "shm/descriptor.hpp"

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/rank_text.hpp"
#include "check.hpp"
#include "codecs/wire_format.hpp"

using namespace ringcomm;

using Change = std::function<void(Descriptor&)>;

template <std::size_t N>
static void put(char (&field)[N], const std::string& text) {
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), std::min(text.size(), N));
}

static Descriptor usual(Collective collective) {
  Descriptor d;
  d.collective = static_cast<std::uint8_t>(collective);
  d.dtype = static_cast<std::uint8_t>(DType::float32);
  d.op = static_cast<std::uint8_t>(Op::sum);
  d.count = 12;
  d.shape = 99;
  put(d.name, "grad");
  put(d.shape_text, "(3, 4)");
  return d;
}

static std::string disagreement_of(Collective collective, const Change& on_rank_1, int size = 3) {
  std::vector<Descriptor> all(static_cast<std::size_t>(size), usual(collective));
  on_rank_1(all[1]);
  std::vector<int> ranks(all.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return disagreement(all, ranks);
}

static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

static const Change kNothing = [](Descriptor&) {};
static const Change kDtype = [](Descriptor& d) { d.dtype = static_cast<std::uint8_t>(DType::float64); };
static const Change kOp = [](Descriptor& d) { d.op = static_cast<std::uint8_t>(Op::max); };
static const Change kRoot = [](Descriptor& d) { d.root = 2; };
static const Change kWire = [](Descriptor& d) { d.wire = find_wire("bfloat16").code(); };
static const Change kAlgorithm = [](Descriptor& d) { put(d.algorithm, "ring"); };
static const Change kScale = [](Descriptor& d) { d.pre.factor = 5; };
static const Change kCount = [](Descriptor& d) { d.count = 13; };
static const Change kShape = [](Descriptor& d) {
  d.shape = 5;
  put(d.shape_text, "(4, 3)");
};
static const Change kName = [](Descriptor& d) { put(d.name, "bias"); };

// Checks which fields each collective compares, and which may differ.
static void what_is_compared() {
  using C = Collective;
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
    const C c = static_cast<C>(i);
    const bool data = c != C::barrier;
    const std::pair<const Change*, bool> expected[] = {
        {&kNothing, false},     {&kDtype, data},
        {&kOp, computes(c)},    {&kRoot, c == C::broadcast || c == C::reduce},
        {&kWire, data},         {&kAlgorithm, true},
        {&kScale, computes(c)}, {&kCount, data && c != C::allgather && c != C::alltoall},
        {&kShape, data},        {&kName, true}};
    for (const auto& [change, differs] : expected) CHECK(disagreement_of(c, *change).empty() == !differs);
    // Compares the longest name of an algorithm completely.
    const std::string longest = "two_level:butterfly_doubling";
    const auto ends_in = [&](const std::string& end) {
      return [=](Descriptor& d) { put(d.algorithm, longest + end); };
    };
    CHECK(has(disagreement_of(c, ends_in("")), longest) &&
          has(disagreement_of(c, ends_in(":16384")), longest + ":16384"));
  }
}

static void exact_words() {
  CHECK(disagreement_of(Collective::allreduce, kDtype) ==
        "allreduce 'grad': ranks disagree on dtype: float32 on ranks 0, 2; float64 on rank 1. "
        "Give the same dtype on every rank.");
  CHECK(disagreement_of(Collective::broadcast,
                        [](Descriptor& d) {
                          d = usual(Collective::allreduce);
                          put(d.name, "");
                        }) ==
        "ranks disagree on the collective: broadcast 'grad' on ranks 0, 2; allreduce on rank 1. "
        "Call the same collectives in the same order on every rank.");
  CHECK(has(disagreement_of(Collective::allreduce, kShape), "shape: (3, 4) on ranks 0, 2; (4, 3) on rank 1."));
  CHECK(has(disagreement_of(Collective::allreduce, kName), "'grad' on ranks 0, 2; 'bias' on rank 1"));
  CHECK(has(disagreement_of(Collective::allreduce, kScale, 7), "one value on ranks 0, 2-6; another value on rank 1"));
  CHECK(has(disagreement_of(Collective::reduce, kRoot), "root: 0 on ranks 0, 2; 2 on rank 1"));
  CHECK(has(disagreement_of(Collective::allgather, kShape), "Only the first dimension may differ"));
  CHECK(has(disagreement_of(Collective::allreduce, [](Descriptor& d) { d.dtype = 200; }), "unknown 200 on rank 1"));
  // Different shapes with the same text are reported as different.
  CHECK(has(disagreement_of(Collective::allreduce, [](Descriptor& d) { d.shape = 1; }),
            "(3, 4) on ranks 0, 2; another (3, 4) on rank 1"));
  CHECK(has(disagreement_of(Collective::allreduce,
                            [](Descriptor& d) {
                              d.count = 1;
                              put(d.shape_text, "");
                            }),
            "(3, 4) on ranks 0, 2; 1 element on rank 1"));
}

static void earlier_checks_win() {
  const Change order[] = {kName, kDtype, kOp, kRoot, kWire, kAlgorithm, kScale, kShape};
  const std::string words[] = {"the name",  "dtype",           "op",   "root", "the wire format",
                               "algorithm", "prescale_factor", "shape"};
  for (std::size_t first = 0; first < std::size(order); ++first) {
    const std::string text = disagreement_of(Collective::reduce, [&](Descriptor& d) {
      for (std::size_t i = first; i < std::size(order); ++i) order[i](d);
    });
    CHECK(has(text, "disagree on " + words[first]));
  }
}

// Checks that a rank without a name agrees with every name. A name that fills its field needs no
// terminating zero.
static void names() {
  CHECK(disagreement_of(Collective::allreduce, [](Descriptor& d) { put(d.name, ""); }).empty());
  const std::string longest(40, 'n');
  CHECK(has(disagreement_of(Collective::allreduce, [&](Descriptor& d) { put(d.name, longest); }),
            "'" + longest + "' on rank 1"));
}

static void many_ranks() {
  CHECK(disagreement({}, {}).empty());
  std::vector<Descriptor> all(100, usual(Collective::allreduce));
  std::vector<int> ranks;
  for (int i = 0; i < 100; ++i) ranks.push_back(1000 - i);  // entries may be in any order
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].count = i;
    put(all[i].shape_text, "");
  }
  const std::string text = disagreement(all, ranks);
  CHECK(has(text, "0 elements on rank 1000; 1 element on rank 999"));
  CHECK(has(text, "; and 92 further values. ") && text.size() < 1000);
}

static void ranges() {
  CHECK(rank_text({3}) == "rank 3");
  CHECK(rank_text({2, 1}) == "ranks 1, 2");
  CHECK(rank_text({0, 1, 2, 5}) == "ranks 0-2, 5");
  CHECK(rank_text({9, 7, 8, 1, 2, 4, 5, 6}) == "ranks 1, 2, 4-9");
}

int main() {
  what_is_compared();
  exact_words();
  earlier_checks_win();
  names();
  many_ranks();
  ranges();
}
