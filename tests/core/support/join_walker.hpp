// One rank of a job in which ranks run out of data at different times, and the expected results of
// its operations.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine_ranks.hpp"

namespace ringcomm {

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
  std::vector<Item> items;                      // the items of every step
  std::vector<std::vector<std::size_t>> steps;  // by epoch and rank: the number of steps with data
};

inline Job make_job(Random& random, int size) {
  Job job;
  std::vector<int> everybody, even, high;
  for (int r = 0; r < size; ++r) {
    everybody.push_back(r);
    if (r % 2 == 0) even.push_back(r);
    if (r >= size / 2) high.insert(high.begin(), r);  // in descending order
  }
  job.sets = {everybody, even, high};
  for (std::size_t i = 0; i < 12; ++i) {
    const auto kind = static_cast<Kind>(below(random, kKinds));
    const Op op = kElementOps[below(random, 5)];
    const double factors[] = {1, 1, -2, 0.5};
    const std::size_t scale = below(random, 3) ? 1 : 500;  // small operations are sent inline where ranks share a host
    job.items.push_back({kind, below(random, 3), below(random, 40) * scale, op, factors[below(random, 4)],
                         factors[below(random, 4)], std::to_string(i)});
  }
  for (int epoch = 0; epoch < 3; ++epoch) {
    auto& steps = job.steps.emplace_back();
    for (int r = 0; r < size; ++r) steps.push_back(below(random, 5));
  }
  return job;
}

inline float value_of(int rank, std::size_t step) {
  return static_cast<float>((rank + static_cast<int>(step)) % 3 + 1);
}

struct Flying {
  const Item* item;
  std::size_t step;
  std::vector<int> active;  // ranks of the set that have data
  std::vector<Op_> ops;
  std::vector<float> data, more;
};

struct Walker {  // one rank of the job
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
  // a cached name changes its shape
  std::size_t count(const Flying& f) const { return f.item->n + (f.step == 2 ? 7 : 0); }
  int root(const Flying& f) const { return set_of(f)[(f.item->n + f.step) % set_of(f).size()]; }

  std::unique_ptr<Flying> submit(const Item& item, std::size_t step, std::vector<int> active) {
    auto flying = std::make_unique<Flying>(Flying{&item, step, std::move(active), {}, {}, {}});
    Flying& f = *flying;
    NamedRequest request;
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
        NamedRequest other = request;
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
        if (item.kind == Kind::wrong) break;  // single, so it is correct
        for (const float x : f.data) is(x, reduced(f, item.kind == Kind::reduce));
    }
  }
};

}  // namespace ringcomm
