// Tests PathTuner: all ranks choose the faster of two paths, even if some calls are delayed or the
// speeds change later.
#include "shm/path_tuner.hpp"

#include <random>

#include "check.hpp"

using namespace ringcomm;

using Seconds = std::array<double, 2>;

// Calls of some ranks; each rank measures different times.
struct Ranks {
  std::vector<PathTuner> ranks;
  std::mt19937 random;
  std::size_t kind = 3;

  Ranks(std::size_t size, unsigned seed, float margin = 1) : ranks(size, PathTuner(margin)), random(seed) {}

  bool call(const Seconds& typical) {
    const bool use_second = ranks[0].use_second(kind);
    PathTuner::Times slowest{};
    for (PathTuner& tuner : ranks) {
      CHECK(tuner.use_second(kind) == use_second);
      for (std::size_t way = 0; way < 2; ++way) slowest[way] = std::max(slowest[way], tuner.report(kind)[way]);
    }
    for (PathTuner& tuner : ranks) {
      tuner.merge(kind, slowest);
      const double spread = std::uniform_real_distribution(0.9, 1.1)(random);
      const bool held_up = std::uniform_real_distribution(0.0, 1.0)(random) < 0.05;
      tuner.record(kind, use_second, typical[use_second ? 1 : 0] * spread * (held_up ? 50 : 1));
    }
    return use_second;
  }
  double share_of_second(int calls, const Seconds& typical) {
    int use_second = 0;
    for (int i = 0; i < calls; ++i) use_second += call(typical) ? 1 : 0;
    return static_cast<double>(use_second) / calls;
  }
};

int main() {
  int decided = 0, tried_longer = 0;
  for (std::size_t size = 1; size <= 9; ++size) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      Ranks ranks(size, seed);
      CHECK(ranks.share_of_second(10, {1, 2}) == 0.5);            // it tries both
      decided += ranks.share_of_second(10, {1, 2}) == 0 ? 1 : 0;  // delayed calls may hide the difference
      tried_longer += Ranks(size, seed).share_of_second(20, {1, 1.1}) == 0.5 ? 1 : 0;
      CHECK(ranks.share_of_second(2000, {1, 2}) < 0.1);
      ranks.share_of_second(4000, {2, 1});  // it notices the change during these calls
      CHECK(ranks.share_of_second(2000, {2, 1}) > 0.9);
    }
  }
  CHECK(decided > 9 * 20 / 2 && tried_longer > 9 * 20 / 2);
  // Measures another kind of call separately, and applies the margin.
  Ranks ranks(2, 1);
  ranks.share_of_second(1000, {2, 1});
  ranks.kind = 4;
  ranks.share_of_second(20, {1, 2});
  CHECK(ranks.share_of_second(1000, {1, 2}) < 0.1);
  for (const auto& [margin, least, most] : {std::tuple{1.25F, 0.0, 0.1}, std::tuple{1.0F, 0.9, 1.0}}) {
    Ranks close(1, 2, margin);
    close.share_of_second(20, {1, 0.88});
    const double share = close.share_of_second(2000, {1, 0.88});
    CHECK(share >= least && share <= most);
  }
}
