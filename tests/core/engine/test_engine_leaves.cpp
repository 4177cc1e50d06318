// Tests ranks that leave at any moment. Agreed operations complete; operations that need a departed
// rank fail with a typed error that names the rank that left first.
#include <atomic>
#include <chrono>

#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

// One rank works for a while and leaves; the other ranks are at any point of their work.
void one_leaves(int size, int leaver, bool pending_there, std::uint64_t seed) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<int> others;
    for (int i = 0; i < size; ++i) {
      if (i != leaver) others.push_back(i);
    }
    r.engine->add_set(others, nullptr, 0);
    std::vector<int> everyone(static_cast<std::size_t>(size));
    std::iota(everyone.begin(), everyone.end(), 0);
    r.engine->add_set(everyone, nullptr, 0);  // idle until the leaver has left
    Random random(seed + static_cast<std::uint64_t>(rank));
    std::vector<std::vector<std::int32_t>> data(40);
    std::vector<Op_> ops;
    std::vector<std::size_t> order(data.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      data[i].assign(3000, 1);
      ops.push_back(r.engine->submit(0, named("x" + std::to_string(i), data[i])));
    }
    std::vector<std::int32_t> last(10, 1), alone(10, 1);
    if (rank == leaver) {
      for (const Op_& op : ops) CHECK(!r.outcome(op));
      const Op_ mine = pending_there ? r.engine->submit(0, named("only here", alone)) : nullptr;
      r.engine->leave();
      if (mine) CHECK(r.outcome(mine).value().kind() == ErrorKind::shut_down);
    } else {
      const Op_ waits = r.engine->submit(0, named("last", last));
      CHECK(is_left(r.outcome(waits), leaver, "last"));
      for (const Op_& op : ops) CHECK(!r.outcome(op));  // operations that the leaver completed, every rank completes
      CHECK(is_left(r.outcome(r.engine->submit(0, named("later", last))), leaver, "later"));
      CHECK(is_left(r.outcome(r.engine->submit(2, named("first", last))), leaver, "first"));
      std::vector<std::int32_t> still(10, 1);
      CHECK(!r.outcome(r.engine->submit(1, named("still", still))));  // a set without the leaver still works
      check_data(still, size - 1);
    }
    for (const auto& d : data) check_data(d, size);
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// The last rank leaves, which ends the rank before it, and so on down to rank 0. Every rank names
// the rank that left first, whichever goodbye it reads first.
void leave_in_a_row(int size) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  std::vector<std::atomic<bool>> departed(static_cast<std::size_t>(size));
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(10, 1);
    CHECK(!r.outcome(r.engine->submit(0, named("all", data))));
    if (rank != size - 1) {
      if (rank == 0) {  // idle until all other ranks have left: it reads their goodbyes in any order
        for (int peer = 1; peer < size; ++peer) departed[static_cast<std::size_t>(peer)].wait(false);
      }
      CHECK(is_left(r.outcome(r.engine->submit(0, named("x", data))), size - 1, "x"));
    }
    r.engine->leave();
    departed[static_cast<std::size_t>(rank)] = true;
    departed[static_cast<std::size_t>(rank)].notify_all();
    end.arrive_and_wait();
  });
}

void all_leave_at_once(int size) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> both(100, 1), mine(100, 1);
    const Op_ common = r.engine->submit(0, named("both", both));
    const Op_ own = size > 1 ? r.engine->submit(0, named("of " + std::to_string(rank), mine)) : common;
    if (rank % 2) r.wait(common);
    r.engine->leave();
    CHECK(common->done() && own->done());
    if (size > 1) CHECK(own->error());
  });
}

// Leaves in a step. `agreed`: the rank leaves once a bucket has run, which is after the step was
// agreed; otherwise possibly before.
void leave_in_a_step(int size, bool agreed) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(20000, 1);
    const auto plan =
        r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, 1, nullptr, 0);
    CHECK(!r.outcome(plan->finish({1})));
    plan->begin();
    if (agreed) {
      plan->ready(0);
      while (!plan->bucket_done(0)) std::this_thread::sleep_for(std::chrono::microseconds(200));
      end.arrive_and_wait();  // otherwise the leaver's goodbye may arrive before the bucket is done
    }
    if (rank == size - 1) {
      r.engine->leave();
      CHECK(r.outcome(plan->finish({1})).value().kind() == ErrorKind::shut_down);
    } else {
      const Op_ step = plan->finish({1});
      CHECK(is_left(r.outcome(step), size - 1, "plan/p"));
    }
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// The coordinator is idle and does not confirm the departure. The rank leaves all the same, and its
// peer learns it.
void leave_while_the_coordinator_sleeps() {
  const auto hub = make_threads_hub(2);
  std::barrier step(2);
  on_ranks(2, [&](int rank) {
    Rank r(hub, rank, 2);
    std::vector<std::int32_t> data(10, 1);
    if (rank == 1) {
      const Op_ op = r.engine->submit(0, named("x", data));
      r.engine->leave();
      CHECK(r.outcome(op).value().kind() == ErrorKind::shut_down);
      step.arrive_and_wait();
    } else {
      step.arrive_and_wait();
      CHECK(is_left(r.outcome(r.engine->submit(0, named("x", data))), 1, "x"));
    }
    check_data(data, 1);
    r.engine->leave();
  });
}

// Every rank completes work that was agreed before a rank left: the group is agreed together, and
// its first member has run.
void leave_with_agreed_work(int size, int leaver) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> token(1, 1), large(std::size_t{1} << 20, 1);
    NamedRequest first = named("first", token), second = named("second", large);
    first.call.collective = Collective::broadcast;  // prevents that they are fused
    const auto ops = r.engine->submit_group(0, {first, second});
    CHECK(!r.outcome(ops[0]));
    if (rank == leaver) r.engine->leave();
    CHECK(!r.outcome(ops[1]));
    check_data(large, size);
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// Leaves immediately after a step: the other ranks complete the step too.
void leave_after_a_step(int size) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(1000, 1);
    const std::vector<PlanBucket> buckets{{DType::int32, data.size(), data.data()}};
    const auto plan = r.engine->make_plan(0, "p", buckets, Op::sum, {}, {}, 1, nullptr, 0);
    CHECK(!r.outcome(plan->finish({1})));
    check_data(data, size);
    if (rank == size - 1) r.engine->leave();
    end.arrive_and_wait();
    r.engine->leave();
  });
}

}  // namespace

int main() {
  for (const int leaver : {0, 1, 2}) {
    one_leaves(3, leaver, false, 3);
    one_leaves(3, leaver, true, 4);
  }
  for (const int size : {1, 2, 3, 6}) all_leave_at_once(size);
  for (const int size : {2, 3, 6}) leave_in_a_row(size);
  for (const bool agreed : {false, true}) leave_in_a_step(3, agreed);
  for (int trial = 0; trial < 30; ++trial) {
    leave_with_agreed_work(3, trial % 3);
    leave_after_a_step(5);
  }
  leave_while_the_coordinator_sleeps();
  std::puts("engine, leaves: all passed");
  return 0;
}
