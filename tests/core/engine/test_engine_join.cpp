// Tests ranks that join: they take part in the other ranks' operations without data, until all have
// joined.
#include "engine/agreement/agreement.hpp"
#include "join_walker.hpp"

using namespace ringcomm;

namespace {

void unequal_steps(int size, bool threaded, bool on_host, std::uint64_t seed, EngineConfig config = {},
                   bool overlaps = true) {
  Random shared(seed);
  const Job job = make_job(shared, size);
  const auto hub = make_threads_hub(size);
  const auto nodes =
      on_host ? Node::for_threads(size) : std::vector<std::shared_ptr<Node>>(static_cast<std::size_t>(size));
  std::vector<std::vector<int>> last(job.steps.size(), std::vector<int>(static_cast<std::size_t>(size)));
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size, config, threaded, nodes[static_cast<std::size_t>(rank)]);
    Walker walker{r, job};
    for (std::size_t s = 1; s < job.sets.size(); ++s) r.engine->add_set(job.sets[s], nullptr, 0);
    std::vector<float> bucket(1000), small(3);
    const auto plan = r.engine->make_plan(
        0, "model", {{DType::float32, bucket.size(), bucket.data()}, {DType::float32, small.size(), small.data()}},
        Op::average, {3, 1}, {}, 2, nodes[static_cast<std::size_t>(rank)], 1, {}, false, overlaps);
    Random random(seed * 100 + static_cast<std::uint64_t>(rank));
    for (std::size_t epoch = 0; epoch < job.steps.size(); ++epoch) {
      const auto& steps = job.steps[epoch];
      const auto has_data = [&](int other, std::size_t step) { return steps[static_cast<std::size_t>(other)] > step; };
      for (std::size_t step = 0; has_data(rank, step); ++step) {
        std::vector<std::unique_ptr<Flying>> flying;
        std::vector<const Item*> items;
        for (const Item& item : job.items) items.push_back(&item);
        std::shuffle(items.begin(), items.end(), random);
        float sum = 0;
        std::size_t active_now = 0;
        for (int other = 0; other < size; ++other) {
          if (has_data(other, step)) sum += value_of(other, step), ++active_now;
        }
        std::fill(bucket.begin(), bucket.end(), value_of(rank, step));
        std::fill(small.begin(), small.end(), value_of(rank, step));
        if (below(random, 2)) plan->ready(0);
        for (const Item* item : items) {
          std::vector<int> active;
          for (const int other : job.sets[item->set]) {
            if (has_data(other, step)) active.push_back(other);
          }
          if (std::find(active.begin(), active.end(), rank) == active.end()) continue;
          flying.push_back(walker.submit(*item, step, active));
        }
        const Op_ whole = plan->finish({1, static_cast<std::uint8_t>(rank == 0)});
        for (const auto& operation : flying) walker.check(*operation);
        CHECK(!r.outcome(whole));
        for (const auto* data : {&bucket, &small}) {
          for (const float x : *data) CHECK(std::abs(x - 3 * sum / static_cast<float>(size)) < 1e-4F);
        }
        CHECK(whole->counts[0] == active_now && whole->counts[1] == (has_data(0, step) ? 1 : 0));
      }
      std::vector<int> mine;
      for (std::size_t s = 0; s < job.sets.size(); ++s) {
        if (contains(job.sets[s], rank)) mine.push_back(static_cast<int>(s));
      }
      const std::vector<Op_> joins = r.engine->join(mine);
      for (const Op_& join : joins) CHECK(!r.outcome(join));
      last[epoch][static_cast<std::size_t>(rank)] = joins[0]->last_joined;
    }
    CHECK(r.engine->pending().empty());
    plan->close();
    if (threaded && seed % 2) end.arrive_and_wait();  // otherwise a rank leaves immediately after the join
    r.engine->leave();
    if (!threaded) end.arrive_and_wait();
  });
  for (std::size_t epoch = 0; epoch < job.steps.size(); ++epoch) {
    const auto& steps = job.steps[epoch];
    const int who = last[epoch][0];
    CHECK(who >= 0 && who < size &&
          steps[static_cast<std::size_t>(who)] == *std::max_element(steps.begin(), steps.end()));
    for (const int reported_rank : last[epoch]) CHECK(reported_rank == who);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t trials = argc > 1 ? std::stoul(argv[1]) : 4;
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    for (int size = 1; size <= 6; ++size) {
      EngineConfig config;
      if (trial % 2) config.fusion_bytes = 100, config.cache_capacity = 3, config.channel.node_segment_bytes = 1024;
      for (const bool on_host : {false, true})
        unequal_steps(size, true, on_host, trial * 10 + static_cast<std::uint64_t>(size), config, trial % 4 < 2);
    }
  }
  for (const int size : {1, 2, 4}) unequal_steps(size, false, false, 77);
  std::puts("engine, join: all passed");
  return 0;
}
