// Every way to end: ranks that leave, die, stall; engines that are destroyed; waits that are interrupted.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

bool is_left(const std::optional<Error>& error, int rank, const std::string& name) {
  return error && error->kind() == ErrorKind::left && error->ranks() == std::vector<int>{rank} &&
         std::string(error->what()).find("'" + name + "'") != std::string::npos;
}

// One rank works for a while and leaves; the others are at anything.
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
      for (const Op_& op : ops) CHECK(!r.outcome(op));  // what the leaver has done, all have done
      CHECK(is_left(r.outcome(r.engine->submit(0, named("later", last))), leaver, "later"));
      std::vector<std::int32_t> still(10, 1);
      CHECK(!r.outcome(r.engine->submit(1, named("still", still))));  // a set without the leaver lives
      check_data(still, size - 1);
    }
    for (const auto& d : data) check_data(d, size);
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// The last rank leaves, which ends the one before it, and so on down to rank 0: every rank names who began, whichever
// goodbye it hears first.
void leave_in_a_row(int size) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  std::vector<std::atomic<bool>> gone(static_cast<std::size_t>(size));
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(10, 1);
    CHECK(!r.outcome(r.engine->submit(0, named("all", data))));
    if (rank != size - 1) {
      if (rank == 0) {  // idle until all the others have gone: it hears their goodbyes in any order
        for (int peer = 1; peer < size; ++peer) gone[static_cast<std::size_t>(peer)].wait(false);
      }
      CHECK(is_left(r.outcome(r.engine->submit(0, named("x", data))), size - 1, "x"));
    }
    r.engine->leave();
    gone[static_cast<std::size_t>(rank)] = true;
    gone[static_cast<std::size_t>(rank)].notify_all();
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

// `agreed`: the leaver goes once a bucket has run, so surely after the step was agreed; else when it may not have been.
void leave_in_a_step(int size, bool agreed) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(20000, 1);
    const auto plan =
        r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, {}, 1, nullptr, 0);
    CHECK(!r.outcome(plan->finish({1})));
    plan->begin();
    if (agreed) {
      plan->ready(0);
      while (!plan->bucket_done(0)) std::this_thread::sleep_for(std::chrono::microseconds(200));
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

void a_rank_dies(int size, bool idle_first) {
  const auto hub = make_threads_hub(size);
  std::barrier start(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::vector<std::int32_t>> data(50, std::vector<std::int32_t>(5000, 1));
    if (idle_first) {
      std::vector<std::int32_t> first(10, 1);
      CHECK(!r.outcome(r.engine->submit(0, named("first", first))));
    }
    start.arrive_and_wait();
    std::vector<Op_> ops;
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (rank == size - 1 && i == 25) threads_kill(*hub, rank);
      ops.push_back(r.engine->submit(0, named("x" + std::to_string(i), data[i])));
    }
    CHECK(r.outcome(ops.back()).value().fatal());
    for (const Op_& op : ops) {
      const auto error = r.outcome(op);
      CHECK(!error || error->kind() == ErrorKind::peer_lost);
    }
    const auto later = r.outcome(r.engine->submit(0, named("later", data[0])));
    CHECK(later && later->kind() == ErrorKind::peer_lost);
    auto plan = r.engine->make_plan(0, "p", {{DType::int32, 10, data[0].data()}}, Op::sum, {}, {}, {}, 1, nullptr, 0);
    plan->begin();
    CHECK(r.outcome(plan->finish({1})).value().fatal());
    plan.reset();
    start.arrive_and_wait();
    r.engine->leave();
    r.engine.reset();
    CHECK(r.transport.expired());  // nobody keeps what the job has lost
  });
}

// Rank 1 does not submit: rank 0 (or a rank that is not the coordinator) gives up, and then the name works again.
void stalls(int size, int absent) {
  const auto hub = make_threads_hub(size);
  std::barrier step(size);
  on_ranks(size, [&](int rank) {
    EngineConfig config;
    config.stall_warn_seconds = 0;
    config.stall_fail_seconds = 0.2;
    Rank r(hub, rank, size, config);
    std::vector<std::int32_t> data(10, 1), other(10, 1);
    if (rank == absent) {
      step.arrive_and_wait();
      // It fails here as it did there: at once if the verdict is known, else when it is heard.
      const auto error = r.outcome(r.engine->submit(0, named("x", data)));
      CHECK(error && error->kind() == ErrorKind::left);
    } else {
      const auto error = r.outcome(r.engine->submit(0, named("x", data)));
      CHECK(error && error->kind() == ErrorKind::left);
      step.arrive_and_wait();
    }
    step.arrive_and_wait();
    CHECK(!r.outcome(r.engine->submit(0, named("x", other))));  // the next of that name is the next everywhere
    check_data(other, size);
    step.arrive_and_wait();
    r.engine->leave();
  });
}

// An engine that is destroyed with operations in flight, without a word.
void destroyed() {
  const auto hub = make_threads_hub(2);
  Rank r(hub, 1, 2);
  std::vector<std::int32_t> data(10, 1);
  const Op_ op = r.engine->submit(0, named("x", data));
  r.engine.reset();
  CHECK(r.outcome(op).value().kind() == ErrorKind::shut_down);
}

// A wait that is interrupted leaves the operation alone.
void interrupted() {
  const auto hub = make_threads_hub(2);
  Rank r(hub, 1, 2);
  std::vector<std::int32_t> data(10, 1);
  const Op_ op = r.engine->submit(0, named("x", data));
  CHECK(thrown([&] { wait_for(*op, *r.worker, -1, [] { return true; }); }) == ErrorKind::interrupted);
  CHECK(!wait_for(*op, *r.worker, 0.01, nullptr) && !op->done());
}

// The coordinator is idle, so nobody confirms that the leaver goes; it goes all the same, and its peer learns of it.
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

// What was agreed before a rank left is done by all: the group is agreed as a whole, and its first member has run.
void leave_with_agreed_work(int size, int leaver) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> token(1, 1), large(std::size_t{1} << 20, 1);
    Named first = named("first", token), second = named("second", large);
    first.call.collective = Collective::broadcast;  // so that they are not fused
    const auto ops = r.engine->submit_group(0, {first, second});
    CHECK(!r.outcome(ops[0]));
    if (rank == leaver) r.engine->leave();
    CHECK(!r.outcome(ops[1]));
    check_data(large, size);
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// A rank that has completed a step may leave at once: the others complete it too.
void leave_after_a_step(int size) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    std::vector<std::int32_t> data(1000, 1);
    const std::vector<PlanBucket> buckets{{DType::int32, data.size(), data.data()}};
    const auto plan = r.engine->make_plan(0, "p", buckets, Op::sum, {}, {}, {}, 1, nullptr, 0);
    CHECK(!r.outcome(plan->finish({1})));
    check_data(data, size);
    if (rank == size - 1) r.engine->leave();
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// A process that only waits to be killed. Before there are threads.
class Victim {
 public:
  Victim() : pid_(::fork()) {
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    CHECK(pid_ > 0);
    processes->watch(pid_);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    CHECK(::waitpid(pid_, nullptr, 0) == pid_);
  }
  const std::shared_ptr<Processes> processes = std::make_shared<Processes>();
  std::map<int, int> as(int rank) const { return {{pid_, rank}}; }

 private:
  pid_t pid_;
};

// The process of the last rank ends without a word while the others wait for it: in an operation, or in a plan's step.
void a_process_ends(int size, bool in_a_step) {
  Victim victim;
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    r.engine->watch(victim.processes, victim.as(size - 1));
    std::vector<std::int32_t> data(10, 1);
    const auto plan =
        r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, {}, 1, nullptr, 0);
    CHECK(!r.outcome(r.engine->submit(0, named("first", data))));
    end.arrive_and_wait();
    if (rank == size - 1) {
      victim.kill();
    } else {
      const auto error = r.outcome(in_a_step ? plan->finish({1}) : r.engine->submit(0, named("x", data)));
      CHECK(error.value().kind() == ErrorKind::peer_lost && error->ranks() == std::vector<int>{size - 1});
      CHECK(r.engine->lost() == error->ranks());
      CHECK(r.outcome(r.engine->submit(0, named("later", data))).value().kind() == ErrorKind::peer_lost);
    }
    end.arrive_and_wait();
  });
}

// It had left before: what does not need it goes on.
void a_process_ends_after_it_left(int size) {
  Victim victim;
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    r.engine->watch(victim.processes, victim.as(size - 1));
    std::vector<int> others(static_cast<std::size_t>(size - 1));
    std::iota(others.begin(), others.end(), 0);
    r.engine->add_set(others, nullptr, 0);
    std::vector<std::int32_t> data(10, 1), held(10, 1);
    if (rank == size - 1) {
      r.engine->leave();
      victim.kill();
    }
    end.arrive_and_wait();
    // An operation that rank 0 holds up for several looks at the processes.
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (rank != size - 1) {
      CHECK(!r.outcome(r.engine->submit(1, named("held", held))));
      check_data(held, size - 1);
      CHECK(is_left(r.outcome(r.engine->submit(0, named("x", data))), size - 1, "x"));
    }
    end.arrive_and_wait();
    r.engine->leave();
  });
}

}  // namespace

int main() {
  for (const bool in_a_step : {false, true}) a_process_ends(3, in_a_step);
  a_process_ends_after_it_left(3);
  destroyed();
  interrupted();
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
  for (const bool idle_first : {false, true}) a_rank_dies(3, idle_first);
  stalls(3, 1);
  stalls(3, 0);  // the coordinator itself is absent: nobody confirms
  leave_while_the_coordinator_sleeps();
  std::puts("engine, ends: all passed");
  return 0;
}
