// Tests graph operations: any collective on arrays whose shapes change from run to run, failures,
// and later sessions.
#include <functional>
#include <thread>

#include "base/aligned_bytes.hpp"
#include "engine_ranks.hpp"
#include "graph_ops/graph_op.hpp"

using namespace ringcomm;

namespace {

using Values = std::vector<std::int32_t>;
using Shape = std::vector<std::int64_t>;

struct Array {
  Values values;
  Shape shape;
};

// A framework that provides memory for results, or accepts the addresses that it gets.
struct Framework {
  std::vector<std::shared_ptr<std::int32_t[]>> memory;
  std::vector<Array> results;
  int failed = -1;
  std::string text;

  static Framework& of(void* context) { return *static_cast<Framework*>(context); }
  Array& result(int index, const std::int64_t* dims, int rank) {
    if (results.size() <= static_cast<std::size_t>(index)) results.resize(static_cast<std::size_t>(index) + 1);
    Array& made = results[static_cast<std::size_t>(index)];
    made.shape.assign(dims, dims + rank);
    std::size_t count = 1;
    for (const std::int64_t n : made.shape) count *= static_cast<std::size_t>(n);
    made.values.assign(count + 1, -1);  // one more element, so that no array is without memory
    return made;
  }
  static void* allocate(void* context, int index, int, int, const std::int64_t* dims, int rank) {
    return of(context).result(index, dims, rank).values.data();
  }
  static int adopt(void* context, int index, int, const std::int64_t* dims, int rank, void* data, std::size_t bytes,
                   void (*release)(void*), void* owner) {
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    Array& made = of(context).result(index, dims, rank);
    std::copy_n(static_cast<const std::int32_t*>(data), bytes / sizeof(std::int32_t), made.values.data());
    release(owner);
    return 1;
  }
  static void fail(void* context, int kind, const char* text) {
    of(context).failed = kind;
    of(context).text = text;
  }
};

Framework run(const GraphOpTable& table, std::int64_t graph_op, const std::vector<Array>& given) {
  Framework framework;
  framework.results.reserve(given.size() + 1);
  std::vector<ringcomm_array> inputs;
  for (const Array& item : given) {
    inputs.push_back(
        {item.values.data(), item.shape.data(), static_cast<int>(item.shape.size()), static_cast<int>(DType::int32)});
  }
  const ringcomm_run call{&framework,       static_cast<int>(inputs.size()),
                          inputs.data(),    Framework::allocate,
                          Framework::adopt, Framework::fail};
  const ringcomm_graph_ops* functions = table.functions();
  CHECK(functions->version == RINGCOMM_GRAPH_OPS_VERSION);
  functions->run(functions->self, graph_op, &call);
  return framework;
}

GraphOpSpec spec(Collective collective, std::vector<std::string> names, bool splits = false) {
  GraphOpSpec made;
  made.call.collective = collective;
  made.names = std::move(names);
  made.splits = splits;
  return made;
}

struct GraphOps {
  Rank r;
  std::shared_ptr<SetLink> link = std::make_shared<SetLink>();
  GraphOpTable table;

  GraphOps(const std::shared_ptr<ThreadsHub>& hub, int rank, int size) : r(hub, rank, size) { connect(); }
  void connect() {
    link->connect({r.engine.get(), [](Engine*) {}}, r.worker, 0, r.rank, r.size);
  }
  std::int64_t make(GraphOpSpec what) { return table.add(std::make_shared<GraphOp>(link, std::move(what))); }
};

Array filled(Shape shape, std::int32_t value) {
  std::size_t count = 1;
  for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
  return {Values(std::max<std::size_t>(count, 1), value), std::move(shape)};
}

void check(const Array& result, const Shape& shape, const std::function<std::int32_t(std::size_t)>& expected) {
  CHECK(result.shape == shape);
  for (std::size_t i = 0; i + 1 < result.values.size(); ++i) CHECK(result.values[i] == expected(i));
}

void steps(GraphOps& graph_ops, int trials) {
  const int rank = graph_ops.r.rank, size = graph_ops.r.size;
  const auto sum = graph_ops.make(spec(Collective::allreduce, {"a", "b", "c"}));
  const auto gather = graph_ops.make(spec(Collective::allgather, {"g", "h"}));
  const auto scatter = graph_ops.make(spec(Collective::reducescatter, {"s"}));
  const auto exchange = graph_ops.make(spec(Collective::alltoall, {"x"}, true));
  const auto barrier = graph_ops.make(spec(Collective::barrier, {"barrier"}));
  Random random(1);
  for (int trial = 0; trial < trials; ++trial) {
    const auto n = static_cast<std::int64_t>(trial % 3 ? 7 : below(random, 2000));  // usually as in the run before
    const auto summed = run(graph_ops.table, sum, {filled({n}, rank), filled({}, 1), filled({n, 2}, 2 * rank)});
    CHECK(summed.failed < 0);
    check(summed.results[0], {n}, [&](std::size_t) { return size * (size - 1) / 2; });
    check(summed.results[1], {}, [&](std::size_t) { return size; });
    check(summed.results[2], {n, 2}, [&](std::size_t) { return size * (size - 1); });
    const auto gathered = run(graph_ops.table, gather, {filled({rank, 3}, rank), filled({}, rank)});
    CHECK(gathered.failed < 0);
    check(gathered.results[1], {size}, [&](std::size_t i) { return static_cast<std::int32_t>(i); });
    CHECK((gathered.results[0].shape == Shape{size * (size - 1) / 2, 3}));
    const std::int64_t rows = 2 * size + 1, mine = rank == 0 ? 3 : 2;
    const auto scattered = run(graph_ops.table, scatter, {filled({rows, 2}, 1)});
    check(scattered.results.at(0), {mine, 2}, [&](std::size_t) { return size; });
    Array splits{{}, {size}};
    for (int to = 0; to < size; ++to) splits.values.push_back(to + trial % 2);
    const auto total = std::accumulate(splits.values.begin(), splits.values.end(), 0);
    const auto exchanged = run(graph_ops.table, exchange, {filled({total + 1, 2}, rank), splits});
    const std::int64_t each = rank + trial % 2;
    check(exchanged.results.at(0), {each * size, 2},
          [&](std::size_t i) { return each ? static_cast<std::int32_t>(i) / static_cast<std::int32_t>(2 * each) : 0; });
    check(exchanged.results.at(1), {size}, [&](std::size_t) { return static_cast<std::int32_t>(each); });
    CHECK(run(graph_ops.table, barrier, {}).failed < 0);
  }
}

void collectives(int size) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    GraphOps graph_ops(hub, rank, size);
    steps(graph_ops, 20);
    graph_ops.r.engine->leave();
  });
}

// Checks that a failure is identical on all ranks, that the operation works again, and that threads
// of one rank may run operations concurrently.
void failures(int size) {
  const auto hub = make_threads_hub(size);
  std::barrier<> end(size);
  on_ranks(size, [&](int rank) {
    GraphOps graph_ops(hub, rank, size);
    const auto graph_op = graph_ops.make(spec(Collective::allreduce, {"first", "second"}));
    for (int trial = 0; trial < 3; ++trial) {
      const std::int64_t n = 5 + (rank == size - 1);
      const auto wrong = run(graph_ops.table, graph_op, {filled({4}, 1), filled({n}, 1)});
      CHECK(wrong.failed == static_cast<int>(ErrorKind::mismatch));
      CHECK(wrong.text.find("second") != std::string::npos && wrong.text.find("(6,)") != std::string::npos);
      CHECK(graph_ops.table.find(graph_op)->take_failure() && !graph_ops.table.find(graph_op)->take_failure());
      const auto right = run(graph_ops.table, graph_op, {filled({4}, 1), filled({5}, 1)});
      check(right.results.at(1), {5}, [&](std::size_t) { return size; });
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const auto own = graph_ops.make(spec(Collective::allreduce, {"thread." + std::to_string(i)}));
        for (int trial = 0; trial < 30; ++trial)
          check(run(graph_ops.table, own, {filled({i}, 1)}).results.at(0), {i}, [&](std::size_t) { return size; });
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(run(graph_ops.table, graph_op, {filled({4}, 1)}).failed ==
          static_cast<int>(ErrorKind::invalid));  // one array is missing
    CHECK(run(graph_ops.table, 99, {}).failed == static_cast<int>(ErrorKind::invalid));
    end.arrive_and_wait();
    graph_ops.r.engine->leave();
    CHECK(run(graph_ops.table, graph_op, {filled({4}, 1), filled({5}, 1)}).failed ==
          static_cast<int>(ErrorKind::shut_down));
    graph_ops.link->disconnect();
    CHECK(run(graph_ops.table, graph_op, {filled({4}, 1), filled({5}, 1)}).failed ==
          static_cast<int>(ErrorKind::shut_down));
    graph_ops.table.remove(graph_op);
    CHECK(run(graph_ops.table, graph_op, {}).failed == static_cast<int>(ErrorKind::invalid));
  });
}

// Runs the same operations on the engine of a later session.
void sessions(int size) {
  const auto first = make_threads_hub(size), second = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    GraphOps graph_ops(first, rank, size);
    const auto graph_op = graph_ops.make(spec(Collective::allreduce, {"again"}));
    check(run(graph_ops.table, graph_op, {filled({3}, 1)}).results.at(0), {3}, [&](std::size_t) { return size; });
    graph_ops.r.engine->leave();
    graph_ops.link->disconnect();
    Rank later(second, rank, size);
    graph_ops.link->connect({later.engine.get(), [](Engine*) {}}, later.worker, 0, rank, size);
    check(run(graph_ops.table, graph_op, {filled({3}, 1)}).results.at(0), {3}, [&](std::size_t) { return size; });
    later.engine->leave();
    graph_ops.link->disconnect();
  });
}

// Checks residuals by tensor: the first run uses those restored before it, unless the array has
// another length.
void stores_residuals() {
  using Floats = std::vector<float>;
  Residuals residuals;
  CHECK(!residuals.feedback() && residuals.residual(1).empty());
  residuals.set_residual(1, {1, 2});
  residuals.set_residual(0, {5});
  CHECK((residuals.residual(1) == Floats{1, 2}) && residuals.residual(2).empty());
  residuals.begin({3, 2, 1});
  CHECK((residuals.residual(0) == Floats{0, 0, 0}) && (residuals.residual(1) == Floats{1, 2}) &&
        residuals.residual(2) == Floats{0});
  Feedback* const feedback = residuals.feedback();
  feedback->begin(1, 1);
  feedback->after(1)[0] = feedback->after(1)[1] = 7;
  residuals.begin({3, 2, 1});
  CHECK(residuals.feedback() == feedback && (residuals.residual(1) == Floats{7, 7}));
  residuals.set_residual(1, {3, 4});
  residuals.set_residual(0, {9});
  CHECK((residuals.residual(1) == Floats{3, 4}) && (residuals.residual(0) == Floats{0, 0, 0}));
  residuals.begin({3, 4, 1});
  CHECK((residuals.residual(1) == Floats{0, 0, 0, 0}));
}

// Checks operations that inspect their inputs: in the second run of a name and in every third run
// after it, for any operation with that name.
void looks() {
  const auto hub = make_threads_hub(1);
  GraphOps graph_ops(hub, 0, 1);
  std::vector<std::uint64_t> seen;
  GraphOpSpec what = spec(Collective::allreduce, {"looked"});
  what.every = 3;
  what.look = [&](std::uint64_t number, const ringcomm_run& given) {
    seen.push_back(number);
    CHECK(given.inputs == 1 && static_cast<const std::int32_t*>(given.input[0].data)[0] == 5);
    if (number == 8) throw Error(ErrorKind::mismatch, "replicas differ");
  };
  const std::int64_t first = graph_ops.make(what), second = graph_ops.make(what);
  for (int run_number = 1; run_number <= 7; ++run_number) {
    const Framework done = run(graph_ops.table, run_number % 2 ? first : second, {filled({2}, 5)});
    CHECK(done.failed == -1 && done.results.size() == 1 && done.results[0].shape == Shape{1});
  }
  CHECK((seen == std::vector<std::uint64_t>{2, 5}));
  const Framework failed = run(graph_ops.table, first, {filled({2}, 5)});
  CHECK(failed.failed == static_cast<int>(ErrorKind::mismatch) && failed.text == "replicas differ");
  graph_ops.link->restart();  // as if all ranks had joined
  for (int run_number = 1; run_number <= 2; ++run_number) run(graph_ops.table, first, {filled({2}, 5)});
  CHECK((seen == std::vector<std::uint64_t>{2, 5, 8, 2}));
}

}  // namespace

int main() {
  looks();
  stores_residuals();
  for (const int size : {1, 2, 3, 5}) collectives(size);
  for (const int size : {2, 3}) failures(size);
  for (const int size : {1, 3}) sessions(size);
  std::puts("graph_ops: all passed");
  return 0;
}
