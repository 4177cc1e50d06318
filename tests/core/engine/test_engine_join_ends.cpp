// Tests edge cases of joining: results that must not change, refusals, and ranks that leave, die or
// stall meanwhile.
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

Op_ join(Rank& r) { return r.engine->join({0}).front(); }

enum class Where { messages, mailboxes, staging, shared };

// Checks that joined ranks change no bit of the results: not the sign of a zero, nor an infinity,
// with any factor.
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
          NamedRequest request;
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
        r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, 0, nullptr, 0);
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
      CHECK(!joined->wait(0.05));  // meanwhile the worker has a turn, and records that this rank joined first
      step.arrive_and_wait();
      CHECK(!r.outcome(joined) && joined->last_joined == 1);
    } else {
      step.arrive_and_wait();
      CHECK(!r.outcome(join(r)));
    }
    CHECK(!r.outcome(plan->finish({})));  // works as before
    step.arrive_and_wait();
    r.engine->leave();
  });
}

// Rank 0 works, `joined` ranks have joined, and the last rank leaves or dies without joining.
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

// Leaves with a rank that has joined: agreed operations complete, and later operations fail with a
// typed error.
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
      for (int i = 0;; ++i) {  // it still runs operations that were agreed before it announces that it leaves
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

// Joins on rank 1 while rank 2 neither submits nor joins: the error names rank 2. The failure
// affects no later operation with that name.
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

// Creates a plan on the other ranks while this rank has joined: it cannot take part, and no rank
// waits for ever.
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
          r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, 0, nullptr, 0);
      error = r.outcome(plan->finish({}));
    }
    CHECK(error && error->kind() == ErrorKind::left && error->ranks() == std::vector<int>{1});
    step.arrive_and_wait();
    r.engine->leave();
  });
}

// Uses names only once while a rank has joined: neither side stores all of them.
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

int main() {
  refusals();
  for (const Where where : {Where::messages, Where::mailboxes, Where::staging, Where::shared}) no_bit_changes(where);
  for (const bool dies : {false, true}) {
    for (const int joined : {1, 2}) one_ends(4, joined, dies);
  }
  for (const int leaver : {0, 1, 2}) leaves_while_joined(3, leaver);
  stalls();
  a_plan_unknown();
  many_names();
  std::puts("engine, join and its ends: all passed");
  return 0;
}
