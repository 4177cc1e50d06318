// Tests every algorithm of every collective, at every number of ranks, size and cut, against the
// definition of the collective.
#include <atomic>
#include <cstring>
#include <string>

#include "schedules.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using Value = std::int64_t;
using Values = std::vector<Value>;
constexpr DType kType = DType::int64;

Value value(int rank, std::size_t index) { return static_cast<Value>(index % 10007) * 31 + rank * rank * 7 + 1; }

Values values(int rank, std::size_t count, std::size_t first = 0) {
  Values out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = value(rank, first + i);
  return out;
}

Values sums(int size, std::size_t count) {
  Values out(count);
  for (int rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < count; ++i) out[i] += value(rank, i);
  }
  return out;
}

// Returns the sizes of the ranks' parts: equal, or unequal with some empty.
std::vector<std::size_t> parts_of(std::size_t count, int size, bool equal) {
  std::vector<std::size_t> parts;
  const auto ranks = static_cast<std::size_t>(size);
  for (std::size_t i = 0; i < ranks; ++i) {
    parts.push_back(equal ? count / ranks : (i % 3 == 1 ? 0 : (count + i * i) / ranks));
  }
  return parts;
}

std::vector<Extent> consecutive(Values& memory, std::size_t first, const std::vector<std::size_t>& parts) {
  std::vector<Extent> blocks;
  for (const std::size_t part : parts) {
    blocks.push_back({reinterpret_cast<std::byte*>(memory.data() + first), part});
    first += part;
  }
  return blocks;
}

Layout listed(std::vector<Extent> blocks, std::size_t segment, const std::vector<std::size_t>& all) {
  const Layout own = Layout::listed(std::move(blocks), sizeof(Value), segment);
  const std::size_t largest = *std::max_element(all.begin(), all.end());  // equal on all ranks
  return Layout::listed(largest / segment + 1, own.blocks(), own.item_size(),
                        [own](std::size_t block, std::size_t k) { return own.at(block, k); });
}

void allreduce(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size);
  Values input = values(seat.rank, count), output(count, -1);
  const bool in_place = seat.random() % 2;  // may differ between ranks
  void* const data = in_place ? input.data() : output.data();
  Layout layout = Layout::even(data, count, schedule->blocks, sizeof(Value), cut.segment);
  seat.run(schedule, std::move(layout), in_place ? nullptr : input.data(), options_of(cut, kType, Op::average));
  CHECK((in_place ? input : output) == sums(seat.size, count));
  CHECK(in_place || input == values(seat.rank, count));
}

void reduce(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  const int root = static_cast<int>(count % static_cast<std::size_t>(seat.size));
  const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size, root);
  Values data = values(seat.rank, count);
  Layout layout = Layout::even(data.data(), count, schedule->blocks, sizeof(Value), cut.segment);
  seat.run(schedule, std::move(layout), nullptr, options_of(cut, kType));
  CHECK(seat.rank != root || data == sums(seat.size, count));
}

void broadcast(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  const int root = static_cast<int>((count + 1) % static_cast<std::size_t>(seat.size));
  const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size, root);
  Values data(count, -1);
  const Values input = values(root, count);
  Layout layout = Layout::even(data.data(), count, schedule->blocks, sizeof(Value), cut.segment);
  seat.run(schedule, std::move(layout), seat.rank == root ? input.data() : nullptr, options_of(cut, kType));
  CHECK(data == input);
}

void allgather(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  const std::vector<std::size_t> parts = parts_of(count, seat.size, algorithm.equal_blocks);
  Values data(std::accumulate(parts.begin(), parts.end(), std::size_t{0}), -1), expected;
  std::vector<Extent> blocks = consecutive(data, 0, parts);
  for (int rank = 0; rank < seat.size; ++rank) {
    const Values part = values(rank, parts[static_cast<std::size_t>(rank)]);
    const auto first = static_cast<std::ptrdiff_t>(expected.size());
    if (rank == seat.rank) std::copy(part.begin(), part.end(), data.begin() + first);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size);
  seat.run(schedule, listed(std::move(blocks), cut.segment, parts), nullptr, options_of(cut, kType));
  CHECK(data == expected);
}

void reducescatter(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  const std::vector<std::size_t> parts = parts_of(count, seat.size, algorithm.equal_blocks);
  const std::size_t total = std::accumulate(parts.begin(), parts.end(), std::size_t{0});
  Values data = values(seat.rank, total);
  std::vector<Extent> blocks = consecutive(data, 0, parts);
  const Extent mine = blocks[static_cast<std::size_t>(seat.rank)];
  const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size);
  seat.run(schedule, listed(std::move(blocks), cut.segment, parts), nullptr, options_of(cut, kType));
  const Values expected = sums(seat.size, total);
  const auto first = static_cast<std::size_t>(reinterpret_cast<Value*>(mine.data) - data.data());
  for (std::size_t i = first; i < first + mine.count; ++i) CHECK(data[i] == expected[i]);
}

void alltoall(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  const std::vector<std::size_t> parts = parts_of(count, 2 * seat.size, algorithm.equal_blocks);
  const auto between = [&](int from, int to) { return parts[static_cast<std::size_t>(from + to) % parts.size()]; };
  std::vector<std::size_t> sent, received;
  Values input, expected;
  for (int peer = 0; peer < seat.size; ++peer) {
    sent.push_back(between(seat.rank, peer));
    received.push_back(between(peer, seat.rank));
    const Values to = values(seat.rank, sent.back(), static_cast<std::size_t>(peer) * 11);
    const Values from = values(peer, received.back(), static_cast<std::size_t>(seat.rank) * 11);
    input.insert(input.end(), to.begin(), to.end());
    expected.insert(expected.end(), from.begin(), from.end());
  }
  Values output(expected.size(), -1);
  std::vector<Extent> blocks = consecutive(input, 0, sent);
  for (const Extent& extent : consecutive(output, 0, received)) blocks.push_back(extent);
  const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size);
  seat.run(schedule, listed(std::move(blocks), cut.segment, parts), nullptr, options_of(cut, kType));
  CHECK(output == expected);
}

void scan(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size);
  const Values input = values(seat.rank, count);
  Values output(count, -1);
  const bool in_place = seat.random() % 2;
  if (in_place) output = input;
  Layout layout = Layout::even(output.data(), count, schedule->blocks, sizeof(Value), cut.segment);
  seat.run(schedule, std::move(layout), in_place ? nullptr : input.data(), options_of(cut, kType));
  const int ranks = seat.rank + (algorithm.collective == Collective::scan ? 1 : 0);
  CHECK(ranks == 0 || output == sums(ranks, count));
}

// Checks that no rank leaves a barrier before all have entered it. There is one counter per
// barrier.
void barriers(const Algorithm& algorithm, int size, int times) {
  std::vector<std::atomic<int>> entered(static_cast<std::size_t>(times));
  on_seats(size, [&](Seat& seat) {
    const auto schedule = schedule_for(algorithm.collective, algorithm.name, seat.rank, seat.size);
    for (std::atomic<int>& count : entered) {
      if (seat.random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(seat.random() % 200));
      count.fetch_add(1, std::memory_order_relaxed);
      seat.run(schedule, Layout::even(nullptr, 0, schedule->blocks, 1, 1), nullptr, {});
      CHECK(count.load(std::memory_order_relaxed) == size);
    }
  });
}

void run_one(Seat& seat, const Algorithm& algorithm, std::size_t count, const Cut& cut) {
  switch (algorithm.collective) {
    case Collective::allreduce:
      return allreduce(seat, algorithm, count, cut);
    case Collective::reduce:
      return reduce(seat, algorithm, count, cut);
    case Collective::broadcast:
      return broadcast(seat, algorithm, count, cut);
    case Collective::allgather:
      return allgather(seat, algorithm, count, cut);
    case Collective::reducescatter:
      return reducescatter(seat, algorithm, count, cut);
    case Collective::alltoall:
      return alltoall(seat, algorithm, count, cut);
    case Collective::barrier:
      return;  // barriers() tests it
    case Collective::scan:
    case Collective::exscan:
      return scan(seat, algorithm, count, cut);
  }
}

// Makes calls one after another without a barrier between them, under three tags.
void every_algorithm(int size) {
  const auto p = static_cast<std::size_t>(size);
  on_seats(size, [&](Seat& seat) {
    for (const Algorithm& algorithm : algorithms()) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, p, p + 1, std::size_t{10007}}) {
        run_one(seat, algorithm, count, {1 << 20, 4, kLongestMessage});
        run_one(seat, algorithm, count, {2 * p + 3 + count / 16, 3, kLongestMessage});
        if (count < 100)
          run_one(seat, algorithm, count, {1, 8, 8});
        else
          run_one(seat, algorithm, count, {4000, 2, 1001});
      }
    }
  });
}

// Checks that scales apply once to each element, in the order pre, reduction, post, also without
// anything to send.
void scaling(int size) {
  on_seats(size, [&](Seat& seat) {
    for (const std::string_view name : algorithm_names(Collective::allreduce)) {
      const auto schedule = schedule_for(Collective::allreduce, name, seat.rank, seat.size);
      for (const bool in_place : {false, true}) {
        Values input = values(seat.rank, 1000), output(1000, -1), expected = sums(seat.size, 1000);
        for (Value& v : expected) v = v * 3 / 2;
        RunOptions options = options_of({137, 3, kLongestMessage}, kType);
        options.pre.factor = 3;
        options.post.divisor = 2;
        void* const data = in_place ? input.data() : output.data();
        seat.run(schedule, Layout::even(data, 1000, schedule->blocks, sizeof(Value), 137), input.data(), options);
        CHECK((in_place ? input : output) == expected);
      }
    }
  });
}

// Checks that ranks that compute one value combine its operands in one order, so that rounding is
// equal.
void equal_bits(int size) {
  constexpr std::size_t kCount = 3000;
  for (const std::string_view name : algorithm_names(Collective::allreduce)) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
    on_seats(size, [&](Seat& seat) {
      const auto schedule = schedule_for(Collective::allreduce, name, seat.rank, seat.size);
      std::vector<float>& data = results[static_cast<std::size_t>(seat.rank)];
      std::normal_distribution<float> normal;
      for (std::size_t i = 0; i < kCount; ++i) data.push_back(normal(seat.random));
      seat.run(schedule, Layout::even(data.data(), kCount, schedule->blocks, sizeof(float), 1000), nullptr,
               options_of({1000, 2, kLongestMessage}, DType::float32));
    });
    for (const auto& result : results)
      CHECK(std::memcmp(result.data(), results[0].data(), kCount * sizeof(float)) == 0);
  }
}

}  // namespace

int main() {
  for (int size = 1; size <= 9; ++size) {
    every_algorithm(size);
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.collective == Collective::barrier) barriers(algorithm, size, 30);
    }
    scaling(size);
    equal_bits(size);
  }
}
