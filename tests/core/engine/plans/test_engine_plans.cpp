// Tests plans of a training step, and queues of non-blocking calls.
#include "engine/worker/queue.hpp"
#include "engine_ranks.hpp"

using namespace ringcomm;
using namespace std::chrono_literals;

namespace {

void plans(int size, std::uint64_t seed) {
  constexpr std::size_t kBuckets = 6, kItems = 9;
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    Random random(seed + static_cast<std::uint64_t>(rank));
    std::vector<std::vector<std::int32_t>> data(kBuckets);
    for (const bool by_priority : {false, false, true, true}) {
      // closed, and created again under the same name
      std::vector<PlanBucket> buckets;
      for (std::size_t b = 0; b < kBuckets; ++b) {
        data[b].resize(b * 50);
        buckets.push_back({DType::int32, data[b].size(), data[b].data()});
      }
      const auto plan = r.engine->make_plan(0, "model", buckets, Op::sum, {}, {}, kItems, nullptr, 0, {}, by_priority);
      CHECK(thrown([&] { r.engine->make_plan(0, "model", {}, Op::sum, {}, {}, 0, nullptr, 0); }) == ErrorKind::invalid);
      for (int step = 0; step < 20; ++step) {
        if (below(random, 2)) plan->begin();
        for (auto& bucket : data) std::fill(bucket.begin(), bucket.end(), rank + step);
        std::vector<std::int32_t> other(10, rank);
        const Op_ beside = r.engine->submit(0, named("loss", other));
        std::vector<std::size_t> order(kBuckets);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        order.resize(below(random, kBuckets + 1));  // finish() submits the other buckets
        for (const std::size_t b : order) plan->ready(b);
        std::vector<std::uint8_t> present(kItems);
        for (std::size_t i = 0; i < kItems; ++i)
          present[i] = static_cast<std::uint8_t>((i + static_cast<std::size_t>(rank)) % 3 == 0);
        const Op_ op = plan->finish(present);
        const std::int32_t ranks = size * (size - 1) / 2;
        if (by_priority) {
          const Op_ flags = plan->part(kBuckets);
          CHECK(!r.outcome(flags) && flags->counts.size() == kItems);
          const std::size_t bucket = below(random, kBuckets);
          CHECK(!r.outcome(plan->part(bucket)));
          check_data(data[bucket], ranks + step * size);
        }
        const auto error = r.outcome(op);
        CHECK(!error && !r.outcome(beside));
        check_data(other, ranks);
        for (std::size_t b = 0; b < kBuckets; ++b) {
          CHECK(by_priority || plan->bucket_done(b));
          check_data(data[b], ranks + step * size);
        }
        for (std::size_t i = 0; i < kItems; ++i) {
          std::size_t expected = 0;
          for (int peer = 0; peer < size; ++peer) expected += (i + static_cast<std::size_t>(peer)) % 3 == 0;
          CHECK(op->counts.at(i) == expected);
        }
      }
      plan->close();
    }
    if (size > 1) {  // plans that differ are refused on every rank, and the next, equal plan works
      std::vector<std::int32_t> odd(static_cast<std::size_t>(5 + (rank == 0)), 1);
      for (const bool equal : {false, true}) {
        const std::vector<PlanBucket> buckets{{DType::int32, equal ? 5 : odd.size(), odd.data()}};
        const auto plan = r.engine->make_plan(0, "odd", buckets, Op::sum, {}, {}, 0, nullptr, 0);
        plan->begin();
        CHECK(thrown([&] { plan->begin(); }) == ErrorKind::invalid);
        plan->ready(0);
        const auto error = r.outcome(plan->finish({}));
        CHECK(equal ? !error : error && error->kind() == ErrorKind::mismatch);
        plan->close();
      }
    }
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// Stores the stretches of a bucket where each step chooses: in this rank's arena, elsewhere, or
// contiguously.
void stretches(int size, bool shared, bool overlaps, std::uint64_t seed) {
  const std::vector<std::size_t> counts{70'000, 16, 40'000, 320};
  const std::size_t all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto hub = make_threads_hub(size);
  const auto nodes = Node::for_threads(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    const auto& node = nodes[static_cast<std::size_t>(rank)];
    Rank r(hub, rank, size, {}, true, shared ? node : nullptr);
    Random random(seed + static_cast<std::uint64_t>(rank));
    const auto plan = r.engine->make_plan(0, "model", {{DType::int32, all, nullptr, counts}}, Op::sum, {}, {}, 0,
                                          shared ? node : nullptr, 3, {}, false, overlaps);
    const bool apart = shared && size > 1;
    CHECK(plan->takes_stretches(0) == apart);
    std::vector<std::int32_t> whole(all), elsewhere(all);
    const std::uint64_t arena = node->allocate(all * sizeof(std::int32_t));
    for (int step = 0; step < 12; ++step) {
      std::vector<std::int32_t*> where;
      std::size_t first = 0;
      for (std::size_t i = 0; i < counts.size(); first += counts[i++]) {
        std::int32_t* const choices[] = {whole.data(), elsewhere.data(),
                                         reinterpret_cast<std::int32_t*>(node->at(rank, arena))};
        // all in the arena in their own place; each at a random place; or mixed between ranks
        const std::size_t choice = !apart ? 0 : step % 3 == 0 ? 2 : step % 3 == 1 ? below(random, 3) : rank % 2 ? 2 : 0;
        where.push_back(choices[choice] + first);
        std::fill_n(where.back(), counts[i], rank + step);
        plan->place(0, i, where.back());
      }
      if (below(random, 2)) plan->ready(0);
      if (step == 0) {  // alone, a bucket that is ready runs only if buckets overlap
        plan->ready(0);
        end.arrive_and_wait();
        for (int i = 0; overlaps && !plan->bucket_done(0) && i < 60'000; ++i) std::this_thread::sleep_for(1ms);
        CHECK(plan->bucket_done(0) == overlaps);
        end.arrive_and_wait();
      }
      CHECK(!r.outcome(plan->finish({})));
      for (std::size_t i = 0; i < counts.size(); ++i)
        check_data({where[i], where[i] + counts[i]}, size * (size - 1) / 2 + step * size);
    }
    plan->close();
    end.arrive_and_wait();
    r.engine->leave();
    node->free(arena);
  });
}

void queues(int size, bool threaded) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    const auto worker = std::make_shared<Worker>(threaded);
    std::vector<int> peers(static_cast<std::size_t>(size));
    std::iota(peers.begin(), peers.end(), 0);
    const std::shared_ptr<Transport> transport = make_threads_transport(hub, rank);
    const auto queue = CallQueue::make(
        worker, std::make_shared<Channel>(transport, peers, rank, TagStream(16, 64), nullptr, 0, ChannelConfig{}));
    std::vector<std::vector<std::int32_t>> data(60);
    std::vector<Op_> ops;
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i].assign(i * 7, rank);
      NamedRequest request = named("call", data[i]);
      if (i % 10 == 3) request.call.algorithm = "no such";  // every rank refuses it; the next call works
      request.call.agreed = i % 2;
      ops.push_back(queue->submit(request.call));
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      CHECK(wait_for(*ops[i], *worker, 60, nullptr));
      if (i % 10 == 3 && size > 1) {
        CHECK(ops[i]->error());
      } else {
        CHECK(!ops[i]->error() || size == 1);
        check_data(data[i], size * (size - 1) / 2);
      }
    }
    end.arrive_and_wait();
    if (size > 1 && rank == 0) {  // never completes, because no other rank calls it
      const Op_ op = queue->submit(named("alone", data[5]).call);
      queue->close();
      CHECK(op->done() && op->error());
    }
    queue->close();
    CHECK(thrown([&] { queue->submit(Call{}); }) == ErrorKind::shut_down);
    worker->stop();
  });
}

}  // namespace

int main() {
  for (const int size : {1, 2, 3, 5}) plans(size, 11);
  for (const int size : {1, 2, 3, 5}) {
    for (const bool shared : {false, true}) stretches(size, shared, true, 21);
    stretches(size, true, false, 22);
  }
  for (const int size : {1, 2, 4}) queues(size, true);
  queues(2, false);
  std::puts("engine, plans: all passed");
  return 0;
}
