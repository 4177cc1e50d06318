// Tests named operations in any order, on sets that overlap.
#include "base/trace.hpp"
#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

// ---- a job: the operations that every rank submits, each in a different order

enum class Kind { sum, fused, gather, exchange, scatter, root, barrier, wrong, group };
constexpr std::size_t kKinds = 9;

struct Item {
  Kind kind;
  int set;
  std::string name;
  std::size_t n;
};

struct Job {
  std::vector<std::vector<int>> sets;
  std::vector<Item> items;
};

Job make_job(Random& random, int size, std::size_t count, std::size_t longest) {
  Job job;
  std::vector<int> everybody, even, high;
  for (int r = 0; r < size; ++r) {
    everybody.push_back(r);
    if (r % 2 == 0) even.push_back(r);
    if (r >= size / 2) high.insert(high.begin(), r);  // in descending order
  }
  job.sets = {everybody, even, high};
  for (std::size_t i = 0; i < count; ++i) {
    const auto kind = static_cast<Kind>(below(random, kKinds));
    // Some names occur repeatedly, so that the cache is used.
    const std::string name = std::to_string(static_cast<int>(kind)) + "." + std::to_string(i);
    job.items.push_back({kind, static_cast<int>(below(random, 3)), name, below(random, longest)});
  }
  return job;
}

struct Flying {
  const Item* item;
  std::vector<Op_> ops;
  std::vector<std::int32_t> data, more;
};

int place(const std::vector<int>& set, int rank) {
  return static_cast<int>(std::find(set.begin(), set.end(), rank) - set.begin());
}

std::unique_ptr<Flying> submit(Rank& r, const Item& item, const std::vector<int>& set, std::size_t round) {
  auto flying = std::make_unique<Flying>();
  flying->item = &item;
  const auto p = set.size();
  const auto me = static_cast<std::size_t>(place(set, r.rank));
  const auto fill = [&](std::size_t n) { flying->data.assign(n, static_cast<std::int32_t>(me + round + 1)); };
  fill(item.n);
  NamedRequest request = named(item.name, flying->data);
  switch (item.kind) {
    case Kind::sum:
    case Kind::fused:
      break;
    case Kind::gather:
      request.call.collective = Collective::allgather;
      request.row = 3;
      request.rows = (me + item.n) % 4;
      fill(3 * request.rows);
      request.call.output = nullptr;
      break;
    case Kind::exchange:  // `to` gets to % 3 rows from every rank, or all ranks get equal numbers
      request.call.collective = Collective::alltoall;
      request.row = 2;
      if (item.n % 2) {
        for (std::size_t to = 0; to < p; ++to) request.splits.push_back((to + me) % 3);
        request.rows = std::accumulate(request.splits.begin(), request.splits.end(), std::size_t{0});
      } else {
        request.rows = 2 * p;
      }
      fill(2 * request.rows);
      request.call.output = nullptr;
      break;
    case Kind::scatter:
      request.call.collective = Collective::reducescatter;
      request.row = 2;
      request.rows = item.n;
      fill(2 * item.n);
      request.call.output = nullptr;
      break;
    case Kind::root:
      request.call.collective = Collective::broadcast;
      request.call.root = static_cast<int>(item.n % p);
      break;
    case Kind::barrier:
      request.call.collective = Collective::barrier;
      request.call.count = 0;
      break;
    case Kind::wrong:
      if (me == item.n % p && p > 1) request.call.op = Op::max;
      break;
    case Kind::group: {
      flying->more.assign(5, static_cast<std::int32_t>(me));
      std::vector<NamedRequest> both{request, named(item.name + ".more", flying->more)};
      both[0].call.input = both[0].call.output = flying->data.data();
      flying->ops = r.engine->submit_group(item.set, both);
      return flying;
    }
  }
  request.call.input = flying->data.data();
  if (request.call.output) request.call.output = flying->data.data();
  flying->ops = {r.engine->submit(item.set, request)};
  return flying;
}

void check(Rank& r, const Flying& flying, const std::vector<int>& set, std::size_t round) {
  const Item& item = *flying.item;
  const auto p = set.size();
  const auto me = static_cast<std::size_t>(place(set, r.rank));
  const auto value = [&](std::size_t rank) { return static_cast<std::int32_t>(rank + round + 1); };
  std::int32_t sum = 0, members = 0;
  for (std::size_t i = 0; i < p; ++i) sum += value(i), members += static_cast<std::int32_t>(i);
  for (const Op_& op : flying.ops) {
    const auto error = r.outcome(op);
    if (item.kind == Kind::wrong && p > 1) {
      CHECK(error && error->kind() == ErrorKind::mismatch);
      CHECK(std::string(error->what()).find(item.name) != std::string::npos);
      return;
    }
    if (error) std::fprintf(stderr, "%s: %s\n", item.name.c_str(), error->what());
    CHECK(!error);
  }
  const Operation& op = *flying.ops[0];
  const auto* out = reinterpret_cast<const std::int32_t*>(op.output.get());
  CHECK(reinterpret_cast<std::uintptr_t>(out) % 64 == 0);
  switch (item.kind) {
    case Kind::gather:
    case Kind::exchange: {
      CHECK(op.counts.size() == p);
      const std::size_t row = item.kind == Kind::gather ? 3 : 2;
      for (std::size_t from = 0; from < p; ++from) {
        const std::size_t rows = item.kind == Kind::gather ? (from + item.n) % 4 : item.n % 2 ? (me + from) % 3 : 2;
        CHECK(op.counts[from] == rows);
        for (std::size_t i = 0; i < rows * row; ++i) CHECK(*out++ == value(from));
      }
      break;
    }
    case Kind::scatter:
      CHECK(op.counts[me] == split(item.n, p, me).count && op.output_bytes == op.counts[me] * 2 * 4);
      for (std::size_t i = 0; i < op.counts[me] * 2; ++i) CHECK(out[i] == sum);
      break;
    case Kind::root:
      check_data(flying.data, value(item.n % p));
      break;
    case Kind::barrier:
      break;
    case Kind::group:
      check_data(flying.more, members);
      [[fallthrough]];
    default:
      check_data(flying.data, sum);
  }
}

void any_order(int size, std::size_t count, std::size_t rounds, EngineConfig config, bool threaded, std::uint64_t seed,
               bool on_host = false) {
  Random shared(seed);
  // On a host, allreduce of the first set runs in shared memory. Fused tensors of more than a few
  // bytes are reduced in place.
  const Job job = make_job(shared, size, count, on_host ? 1000 : 40);
  const auto hub = make_threads_hub(size);
  const auto nodes =
      on_host ? Node::for_threads(size) : std::vector<std::shared_ptr<Node>>(static_cast<std::size_t>(size));
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size, config, threaded, nodes[static_cast<std::size_t>(rank)]);
    for (std::size_t s = 1; s < job.sets.size(); ++s)
      CHECK(r.engine->add_set(job.sets[s], nullptr, 0) == static_cast<int>(s));
    Random random(seed * 100 + static_cast<std::uint64_t>(rank));
    std::vector<const Item*> mine;
    for (const Item& item : job.items) {
      const auto& set = job.sets[static_cast<std::size_t>(item.set)];
      if (std::find(set.begin(), set.end(), rank) != set.end()) mine.push_back(&item);
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      std::shuffle(mine.begin(), mine.end(), random);
      std::vector<std::unique_ptr<Flying>> flying;
      for (const Item* item : mine) {
        flying.push_back(submit(r, *item, job.sets[static_cast<std::size_t>(item->set)], round));
        if (below(random, 50) == 0) std::this_thread::yield();
      }
      std::shuffle(flying.begin(), flying.end(), random);
      for (const auto& operation : flying)
        check(r, *operation, job.sets[static_cast<std::size_t>(operation->item->set)], round);
    }
    CHECK(r.engine->pending().empty());
    if (threaded) {
      end.arrive_and_wait();  // a peer without a worker thread would need this rank's turns
      r.engine->leave();
    } else {
      r.engine->leave();
      end.arrive_and_wait();
    }
    CHECK(thrown([&] { r.engine->submit(0, NamedRequest{}); }) == ErrorKind::shut_down);
  });
}

void names_in_flight() {
  const auto hub = make_threads_hub(2);
  std::barrier step(2);
  on_ranks(2, [&](int rank) {
    Rank r(hub, rank, 2);
    std::vector<std::int32_t> a(10, 1), b(10, 1);
    if (rank == 0) {
      const Op_ first = r.engine->submit(0, named("x", a));
      CHECK(thrown([&] { r.engine->submit(0, named("x", b)); }) == ErrorKind::invalid);
      CHECK(thrown([&] { r.engine->submit_group(0, {named("y", b), named("x", b)}); }) == ErrorKind::invalid);
      CHECK(thrown([&] { r.engine->submit_group(0, {named("y", b), named("y", b)}); }) == ErrorKind::invalid);
      CHECK(thrown([&] { r.engine->remove_set(0); }) == ErrorKind::invalid);
      CHECK(r.engine->pending() == std::vector<std::string>{"x"});
      step.arrive_and_wait();
      CHECK(!r.outcome(first));
    } else {
      step.arrive_and_wait();
      CHECK(!r.outcome(r.engine->submit(0, named("x", a))));
    }
    check_data(a, 2);
    CHECK(thrown([&] { r.engine->submit(7, named("x", a)); }) == ErrorKind::invalid);
    CHECK(thrown([&] { r.engine->add_set({0, 2}, nullptr, 0); }) == ErrorKind::invalid);
    CHECK(thrown([&] { r.engine->add_set({1, 1}, nullptr, 0); }) == ErrorKind::invalid);
    for (int round = 0; round < 200; ++round) {  // sets are created and removed, and their tags wrap around
      const int set = r.engine->add_set({1, 0}, nullptr, 0);
      std::vector<std::int32_t> c(10, 1);
      CHECK(!r.outcome(r.engine->submit(set, named("x", c))));
      check_data(c, 2);
      r.engine->remove_set(set);
    }
    step.arrive_and_wait();
    r.engine->leave();
  });
}

void many_threads_submit() {
  constexpr int kSize = 3, kThreads = 4, kEach = 100;
  const auto hub = make_threads_hub(kSize);
  std::barrier end(kSize);
  on_ranks(kSize, [&](int rank) {
    Rank r(hub, rank, kSize);
    on_ranks(kThreads, [&](int thread) {
      for (int i = 0; i < kEach; ++i) {
        std::vector<std::int32_t> data(10, 1);
        const Op_ op = r.engine->submit(0, named(std::to_string(thread) + "." + std::to_string(i % 10), data));
        CHECK(!r.outcome(op));
        check_data(data, kSize);
      }
    });
    end.arrive_and_wait();
    r.engine->leave();
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t scale = argc > 1 ? std::stoul(argv[1]) : 1;
  names_in_flight();
  many_threads_submit();
  for (int size = 1; size <= 9; ++size) {
    EngineConfig config;
    any_order(size, 150 * scale, 3, config, true, static_cast<std::uint64_t>(size));
    config.fusion_bytes = 400;
    config.cache_capacity = 20;
    any_order(size, 60, 3, config, true, static_cast<std::uint64_t>(size) + 100);
  }
  // a caller lists the waiting operations while names are evicted that other ranks still use
  for (const int size : {2, 3, 5}) {
    EngineConfig config;
    config.cache_capacity = 5;
    trace().enable(true);
    any_order(size, 60, 5, config, true, static_cast<std::uint64_t>(size) + 200);
    trace().enable(false);
    trace().drain();
  }
  for (const int size : {1, 2, 4}) any_order(size, 60, 2, {}, false, 7);
  for (const int size : {2, 3, 5}) any_order(size, 100, 3, {}, true, 8, true);
  EngineConfig small;
  small.channel.node_segment_bytes = 1024;
  for (const int size : {2, 4}) any_order(size, 100, 3, small, true, 9, true);
  std::puts("engine: all passed");
  return 0;
}
