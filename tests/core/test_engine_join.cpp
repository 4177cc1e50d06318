// Ranks that join: they take part in what the others have without giving anything, until all have joined.
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "engine/agreement.hpp"
#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

enum class Kind { reduce, gather, exchange, scatter, root, barrier, wrong, group };
constexpr std::size_t kKinds = 8;

struct Item {
  Kind kind;
  std::size_t set, n;
  Op op;
  double pre, post;
  std::string name;
};

struct Job {
  std::vector<std::vector<int>> sets;
  std::vector<Item> items;                      // of every step
  std::vector<std::vector<std::size_t>> steps;  // by epoch and rank: how many it has data for
};

Job make_job(Random& random, int size) {
  Job job;
  std::vector<int> everybody, even, high;
  for (int r = 0; r < size; ++r) {
    everybody.push_back(r);
    if (r % 2 == 0) even.push_back(r);
    if (r >= size / 2) high.insert(high.begin(), r);  // in another order
  }
  job.sets = {everybody, even, high};
  for (std::size_t i = 0; i < 12; ++i) {
    const auto kind = static_cast<Kind>(below(random, kKinds));
    const Op op = kElementOps[below(random, 5)];
    const double factors[] = {1, 1, -2, 0.5};
    const std::size_t scale = below(random, 3) ? 1 : 500;  // small ones ride in mailboxes where ranks share a host
    job.items.push_back({kind, below(random, 3), below(random, 40) * scale, op, factors[below(random, 4)],
                         factors[below(random, 4)], std::to_string(i)});
  }
  for (int epoch = 0; epoch < 3; ++epoch) {
    auto& steps = job.steps.emplace_back();
    for (int r = 0; r < size; ++r) steps.push_back(below(random, 5));
  }
  return job;
}

float value_of(int rank, std::size_t step) { return static_cast<float>((rank + static_cast<int>(step)) % 3 + 1); }

Op_ join(Rank& r) { return r.engine->join({0}).front(); }

struct Flying {
  const Item* item;
  std::size_t step;
  std::vector<int> active;  // ranks of the set that have data
  std::vector<Op_> ops;
  std::vector<float> data, more;
};

struct Walker {  // one rank at the job
  Rank& r;
  const Job& job;

  const std::vector<int>& set_of(const Flying& f) const { return job.sets[f.item->set]; }
  std::size_t place(const Flying& f, int rank) const {
    const auto& set = set_of(f);
    return static_cast<std::size_t>(std::find(set.begin(), set.end(), rank) - set.begin());
  }
  static std::size_t scale(const Flying& f) { return f.item->n < 40 ? 1 : 300; }
  std::size_t rows(const Flying& f, int rank) const { return (place(f, rank) + f.item->n + f.step) % 4 * scale(f); }
  std::size_t splits(const Flying& f, int from, int to) const {
    return (place(f, from) + place(f, to) + f.step) % 3 * scale(f);
  }
  std::size_t count(const Flying& f) const { return f.item->n + (f.step == 2 ? 7 : 0); }  // a cached name changes shape
  int root(const Flying& f) const { return set_of(f)[(f.item->n + f.step) % set_of(f).size()]; }

  std::unique_ptr<Flying> submit(const Item& item, std::size_t step, std::vector<int> active) {
    auto flying = std::make_unique<Flying>(Flying{&item, step, std::move(active), {}, {}, {}});
    Flying& f = *flying;
    Named request;
    request.call.dtype = DType::float32;
    request.call.name = item.name;
    request.call.op = item.op;
    const auto fill = [&](std::size_t n) { f.data.assign(n, value_of(r.rank, step)); };
    bool in_place = true;
    request.call.count = count(f);
    fill(count(f));
    switch (item.kind) {
      case Kind::reduce:
        request.call.pre.factor = item.pre;
        request.call.post.factor = item.post;
        break;
      case Kind::gather:
        request.call.collective = Collective::allgather;
        request.row = 3;
        request.rows = rows(f, r.rank);
        fill(3 * request.rows);
        in_place = false;
        break;
      case Kind::exchange:
        request.call.collective = Collective::alltoall;
        request.row = 2;
        for (const int to : set_of(f)) request.splits.push_back(splits(f, r.rank, to));
        request.rows = std::accumulate(request.splits.begin(), request.splits.end(), std::size_t{0});
        fill(2 * request.rows);
        in_place = false;
        break;
      case Kind::scatter:
        request.call.collective = Collective::reducescatter;
        request.call.pre.factor = item.pre;
        request.call.post.factor = item.post;
        request.row = 2;
        request.rows = count(f);
        fill(2 * count(f));
        in_place = false;
        break;
      case Kind::root:
        request.call.collective = Collective::broadcast;
        request.call.root = static_cast<int>(place(f, root(f)));
        break;
      case Kind::barrier:
        request.call.collective = Collective::barrier;
        request.call.count = 0;
        break;
      case Kind::wrong:
        request.call.op = r.rank == f.active[0] ? Op::min : Op::max;
        break;
      case Kind::group: {
        f.more.assign(5, value_of(r.rank, step));
        request.call.input = request.call.output = f.data.data();
        Named other = request;
        other.call.name += ".more";
        other.call.count = f.more.size();
        other.call.input = other.call.output = f.more.data();
        f.ops = r.engine->submit_group(static_cast<int>(item.set), {request, other});
        return flying;
      }
    }
    request.call.input = f.data.data();
    request.call.output = in_place ? f.data.data() : nullptr;
    f.ops = {r.engine->submit(static_cast<int>(item.set), request)};
    return flying;
  }

  float reduced(const Flying& f, bool scaled) const {
    const Item& item = *f.item;
    double result = 0;
    for (std::size_t i = 0; i < f.active.size(); ++i) {
      const double x = value_of(f.active[i], f.step) * (scaled ? item.pre : 1);
      if (i == 0)
        result = x;
      else if (item.op == Op::min)
        result = std::min(result, x);
      else if (item.op == Op::max)
        result = std::max(result, x);
      else if (item.op == Op::product)
        result *= x;
      else
        result += x;
    }
    if (item.op == Op::average) result /= static_cast<double>(set_of(f).size());
    return static_cast<float>(result * (scaled ? item.post : 1));
  }

  void check(const Flying& f) const {
    const Item& item = *f.item;
    const auto is = [](float x, float y) { CHECK(std::abs(x - y) <= 1e-5F * std::abs(y)); };
    const bool has_root = std::find(f.active.begin(), f.active.end(), root(f)) != f.active.end();
    for (const Op_& op : f.ops) {
      const auto error = r.outcome(op);
      if (item.kind == Kind::wrong && f.active.size() > 1) {
        CHECK(error && error->kind() == ErrorKind::mismatch);
        return;
      }
      if (item.kind == Kind::root && !has_root) {
        CHECK(error && error->kind() == ErrorKind::joined && error->ranks() == std::vector<int>{root(f)});
        CHECK(std::string(error->what()).find("'" + item.name + "'") != std::string::npos);
        return;
      }
      if (error) std::fprintf(stderr, "%s: %s\n", item.name.c_str(), error->what());
      CHECK(!error);
    }
    const Operation& op = *f.ops[0];
    const auto* out = reinterpret_cast<const float*>(op.output.get());
    const auto active = [&](int rank) { return std::find(f.active.begin(), f.active.end(), rank) != f.active.end(); };
    switch (item.kind) {
      case Kind::gather:
      case Kind::exchange: {
        const std::size_t row = item.kind == Kind::gather ? 3 : 2;
        CHECK(op.counts.size() == set_of(f).size());
        for (const int from : set_of(f)) {
          const std::size_t n = item.kind == Kind::gather ? rows(f, from) : splits(f, from, r.rank);
          CHECK(op.counts[place(f, from)] == (active(from) ? n : 0));
          for (std::size_t i = 0; active(from) && i < n * row; ++i) is(*out++, value_of(from, f.step));
        }
        break;
      }
      case Kind::scatter: {
        const std::size_t mine = split(count(f), set_of(f).size(), place(f, r.rank)).count;
        CHECK(op.output_bytes == mine * 2 * sizeof(float));
        for (std::size_t i = 0; i < mine * 2; ++i) is(out[i], reduced(f, true));
        break;
      }
      case Kind::root:
        for (const float x : f.data) is(x, value_of(root(f), f.step));
        break;
      case Kind::barrier:
        break;
      case Kind::group:
        for (const float x : f.more) is(x, reduced(f, false));
        [[fallthrough]];
      default:
        if (item.kind == Kind::wrong) break;  // alone: it is right
        for (const float x : f.data) is(x, reduced(f, item.kind == Kind::reduce));
    }
  }
};

void unequal_steps(int size, bool threaded, bool on_host, std::uint64_t seed, EngineConfig config = {}) {
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
        Op::average, {3, 1}, {}, {}, 2, nodes[static_cast<std::size_t>(rank)], 1);
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
        for (const auto& one : flying) walker.check(*one);
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
    if (threaded && seed % 2) end.arrive_and_wait();  // else who comes from the join leaves at once
    r.engine->leave();
    if (!threaded) end.arrive_and_wait();
  });
  for (std::size_t epoch = 0; epoch < job.steps.size(); ++epoch) {
    const auto& steps = job.steps[epoch];
    const int who = last[epoch][0];
    CHECK(who >= 0 && who < size &&
          steps[static_cast<std::size_t>(who)] == *std::max_element(steps.begin(), steps.end()));
    for (const int said : last[epoch]) CHECK(said == who);
  }
}

enum class Where { messages, mailboxes, staging, shared };

// What ranks that have joined add changes no bit: not the sign of a zero, nor an infinity; with any factor.
void no_bit_changes(Where where) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto hub = make_threads_hub(3);
  const auto nodes = where == Where::messages ? std::vector<std::shared_ptr<Node>>(3) : Node::for_threads(3);
  const std::size_t count = where == Where::mailboxes ? 6 : 6000;
  std::barrier end(3);
  on_ranks(3, [&](int rank) {
    const auto node = nodes[static_cast<std::size_t>(rank)];
    EngineConfig config;
    config.channel.node_segment_bytes = 2048;
    Rank r(hub, rank, 3, config, true, node);
    std::vector<float> private_data(count);
    std::span<float> data(private_data);
    if (where == Where::shared)
      data = {reinterpret_cast<float*>(node->at(rank, node->allocate(count * sizeof(float)))), count};
    if (rank == 0) {
      for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
        for (const double factor : {1.0, -1.0, 0.0}) {
          const float values[] = {-0.0F, 0.0F, 1.5F, -kInfinity, kInfinity, -7};
          std::vector<float> expected;
          for (std::size_t i = 0; i < count; ++i) {
            data[i] = values[i % 6];
            expected.push_back(data[i] * static_cast<float>(factor));
          }
          Named request;
          request.call.input = request.call.output = data.data();
          request.call.count = data.size();
          request.call.op = op;
          request.call.pre.factor = factor;
          request.call.name = "x";
          CHECK(!r.outcome(r.engine->submit(0, request)));
          for (std::size_t i = 0; i < data.size(); ++i) {
            CHECK(std::bit_cast<std::uint32_t>(data[i]) == std::bit_cast<std::uint32_t>(expected[i]) ||
                  (std::isnan(data[i]) && std::isnan(expected[i])));
          }
        }
      }
    }
    CHECK(!r.outcome(join(r)));
    end.arrive_and_wait();
    r.engine->leave();
  });
}

void refusals() {
  const auto hub = make_threads_hub(2);
  std::barrier step(2);
  on_ranks(2, [&](int rank) {
    Rank r(hub, rank, 2);
    std::vector<std::int32_t> data(10, 1);
    const auto plan =
        r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, {}, 0, nullptr, 0);
    plan->begin();
    CHECK(thrown([&] { join(r); }) == ErrorKind::invalid);
    CHECK(!r.outcome(plan->finish({})));
    if (rank == 0) {
      const Op_ joined = join(r);
      CHECK(thrown([&] { join(r); }) == ErrorKind::invalid);
      CHECK(thrown([&] { r.engine->submit(0, named("x", data)); }) == ErrorKind::invalid);
      CHECK(thrown([&] { plan->begin(); }) == ErrorKind::invalid);
      CHECK(thrown([&] { r.engine->remove_set(0); }) == ErrorKind::invalid);
      CHECK(r.engine->pending() == std::vector<std::string>{"join"});
      step.arrive_and_wait();
      CHECK(!r.outcome(joined) && joined->last_joined == 1);
    } else {
      step.arrive_and_wait();
      CHECK(!r.outcome(join(r)));
    }
    CHECK(!r.outcome(plan->finish({})));  // as before
    step.arrive_and_wait();
    r.engine->leave();
  });
}

// Rank 0 works, `joined` have joined, and the last rank leaves without having joined; or dies.
void one_ends(int size, int joined, bool dies) {
  const auto hub = make_threads_hub(size);
  std::barrier step(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(1000, 1);
    CHECK(!r.outcome(r.engine->submit(0, named("first", data))));
    const bool joins = rank > 0 && rank <= joined;
    const Op_ mine = joins ? join(r) : nullptr;
    step.arrive_and_wait();
    if (rank == size - 1) {
      if (dies) threads_kill(*hub, rank);
      if (!dies) r.engine->leave();
      step.arrive_and_wait();
    } else {
      const auto error = r.outcome(joins ? mine : r.engine->submit(0, named("x", data)));
      CHECK(error && error->kind() == (dies ? ErrorKind::peer_lost : ErrorKind::left));
      CHECK(error->ranks() == std::vector<int>{size - 1});
      step.arrive_and_wait();
      r.engine->leave();
    }
  });
}

// A rank that has joined leaves all the same: what had been agreed is done, and later operations fail, typed.
void leaves_while_joined(int size, int leaver) {
  const auto hub = make_threads_hub(size);
  std::barrier step(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(100000, 1);
    const Op_ joined = rank == leaver ? join(r) : nullptr;
    if (rank != leaver) {
      CHECK(!r.outcome(r.engine->submit(0, named("x", data))));
      check_data(data, size - 1);
    }
    step.arrive_and_wait();
    if (rank == leaver) {
      r.engine->leave();
      CHECK(r.outcome(joined).value().kind() == ErrorKind::shut_down);
    } else {
      for (int i = 0;; ++i) {  // what is agreed before it says that it goes, it still does
        const auto error = r.outcome(r.engine->submit(0, named(std::to_string(i), data)));
        if (!error) continue;
        CHECK(error->kind() == ErrorKind::left && error->ranks() == std::vector<int>{leaver});
        break;
      }
    }
    step.arrive_and_wait();
    if (rank != leaver) r.engine->leave();
  });
}

// Rank 1 has joined; rank 2 neither submits nor joins: it is the one that is named. And what failed so fails no later
// operation of that name.
void stalls() {
  const auto hub = make_threads_hub(3);
  std::barrier step(3);
  on_ranks(3, [&](int rank) {
    EngineConfig config;
    config.stall_warn_seconds = 0;
    config.stall_fail_seconds = 0.2;
    Rank r(hub, rank, 3, config);
    std::vector<std::int32_t> data(10, 1);
    const Op_ joined = rank == 1 ? join(r) : nullptr;
    if (rank == 0) {
      const auto error = r.outcome(r.engine->submit(0, named("x", data)));
      CHECK(error && error->kind() == ErrorKind::left && error->ranks() == std::vector<int>{2});
    }
    step.arrive_and_wait();
    if (rank != 1) CHECK(!r.outcome(join(r)));
    if (rank == 1) CHECK(!r.outcome(joined));
    CHECK(!r.outcome(r.engine->submit(0, named("x", data))));
    check_data(data, 3);
    step.arrive_and_wait();
    r.engine->leave();
  });
}

// A plan that the others have made while this rank had joined: it cannot take part, and nobody waits for ever.
void a_plan_unknown() {
  const auto hub = make_threads_hub(3);
  std::barrier step(3);
  on_ranks(3, [&](int rank) {
    Rank r(hub, rank, 3);
    std::vector<std::int32_t> data(10, 1);
    std::optional<Error> error;
    if (rank == 1) {
      error = r.outcome(join(r));
    } else {
      const auto plan =
          r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, {}, 0, nullptr, 0);
      error = r.outcome(plan->finish({}));
    }
    CHECK(error && error->kind() == ErrorKind::left && error->ranks() == std::vector<int>{1});
    step.arrive_and_wait();
    r.engine->leave();
  });
}

// Names that never come again, while a rank has joined: neither side remembers them all.
void many_names() {
  const auto hub = make_threads_hub(2);
  std::barrier step(2);
  on_ranks(2, [&](int rank) {
    EngineConfig config;
    config.cache_capacity = 8;
    Rank r(hub, rank, 2, config);
    if (rank == 1) {
      for (int i = 0; i < 2000; ++i) {
        std::vector<std::int32_t> data(3, i);
        CHECK(!r.outcome(r.engine->submit(0, named("once." + std::to_string(i), data))));
        check_data(data, i);
      }
    }
    CHECK(!r.outcome(join(r)));
    step.arrive_and_wait();
    r.engine->leave();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t trials = argc > 1 ? std::stoul(argv[1]) : 4;
  refusals();
  for (const Where where : {Where::messages, Where::mailboxes, Where::staging, Where::shared}) no_bit_changes(where);
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    for (int size = 1; size <= 6; ++size) {
      EngineConfig config;
      if (trial % 2) config.fusion_bytes = 100, config.cache_capacity = 3, config.channel.node_segment_bytes = 1024;
      for (const bool on_host : {false, true})
        unequal_steps(size, true, on_host, trial * 10 + static_cast<std::uint64_t>(size), config);
    }
  }
  for (const int size : {1, 2, 4}) unequal_steps(size, false, false, 77);
  for (const bool dies : {false, true}) {
    for (const int joined : {1, 2}) one_ends(4, joined, dies);
  }
  for (const int leaver : {0, 1, 2}) leaves_while_joined(3, leaver);
  stalls();
  a_plan_unknown();
  many_names();
  std::puts("engine, join: all passed");
  return 0;
}
