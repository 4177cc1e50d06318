// Tests PartOrder: the ranks run the same parts in the same order, in any order of readiness.
#include "engine/plans/part_order.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "check.hpp"

using namespace ringcomm;

namespace {

struct Rank {
  PartOrder order;
  std::set<std::size_t> ready;
  std::vector<std::size_t> ran;
  std::vector<std::int32_t>* numbers = nullptr;  // not null: waits for the other ranks' numbers

  PartOrder::Ready is_ready() {
    return [this](std::size_t part) { return ready.contains(part); };
  }
};

void by_priority(std::size_t size, std::size_t buckets, unsigned seed) {
  std::mt19937 random(seed);
  const std::size_t parts = buckets + 1;
  std::vector<Rank> ranks(size, Rank{PartOrder(parts, true), {}, {}});
  for (int step = 0; step < 3; ++step) {
    std::set<std::size_t> everywhere;
    for (int turns = 0; !std::all_of(ranks.begin(), ranks.end(), [](const Rank& r) { return r.order.finished(); });) {
      CHECK(++turns < 10'000);  // no rank waits in vain
      Rank& rank = ranks[random() % size];
      if (random() % 3 == 0) rank.ready.insert(random() % buckets);
      if (random() % 50 == 0) {  // finish(): buckets that are not ready run as they are
        for (std::size_t part = 0; part < parts; ++part) rank.ready.insert(part);
      }
      if (rank.numbers == nullptr) {
        while (const auto part = rank.order.next(rank.is_ready())) {
          CHECK(rank.ready.contains(*part));
          rank.ran.push_back(*part);
          rank.order.ended(*part, 1000);
        }
        rank.numbers = rank.order.agree(rank.is_ready());
      }
      if (!std::all_of(ranks.begin(), ranks.end(), [](const Rank& r) { return r.numbers != nullptr; })) continue;
      std::vector<std::int32_t> least = *ranks[0].numbers;
      for (const Rank& r : ranks) {
        for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], (*r.numbers)[i]);
      }
      for (Rank& r : ranks) {
        *std::exchange(r.numbers, nullptr) = least;
        r.order.agreed();
      }
    }
    for (Rank& r : ranks) {
      CHECK(r.ran == ranks[0].ran && r.ran.size() == parts && std::set(r.ran.begin(), r.ran.end()).size() == parts);
      r.ready.clear();
      r.order.restart();
    }
    for (Rank& r : ranks) r.ran.clear();
  }
}

}  // namespace

int main() {
  for (std::size_t size = 1; size <= 9; ++size) {
    for (unsigned seed = 0; seed < 100; ++seed) by_priority(size, 1 + seed % 12, seed);
  }
  // Chooses the flags first, then the first buckets.
  PartOrder order(4, true);
  std::set<std::size_t> ready{2};
  const PartOrder::Ready is_ready = [&](std::size_t part) { return ready.contains(part); };
  std::vector<std::size_t> ran;
  while (!order.finished()) {
    CHECK(!order.next(is_ready) && order.agree(is_ready) != nullptr);
    order.agreed();
    while (const auto part = order.next(is_ready)) {
      ran.push_back(*part);
      order.ended(*part, std::int64_t{1} << 40);
    }
    ready = {0, 1, 2, 3};
  }
  CHECK((ran == std::vector<std::size_t>{2, 3, 0, 1}));
  // Chooses one bucket after the flags, which are short.
  PartOrder one(6, true);
  ready = {0, 1, 2, 3, 4, 5};
  CHECK(!one.next(is_ready) && one.agree(is_ready) != nullptr);
  one.agreed();
  CHECK(*one.next(is_ready) == 5);
  one.ended(5, 1);
  for (const std::size_t expected : {0, 1}) {
    CHECK(one.agree(is_ready) != nullptr);
    one.agreed();
    CHECK(*one.next(is_ready) == expected);
    if (expected == 0) {
      one.ended(0, std::int64_t{1} << 40);
      CHECK(!one.next(is_ready));
    }
  }
  // Runs in order.
  PartOrder fixed(3, false);
  CHECK(!fixed.next(is_ready) || *fixed.next(is_ready) == 0);
  CHECK(fixed.agree(is_ready) == nullptr);
}
