// Tests ranks that die or stall, engines that are destroyed, and waits that are interrupted.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

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
    auto plan = r.engine->make_plan(0, "p", {{DType::int32, 10, data[0].data()}}, Op::sum, {}, {}, 1, nullptr, 0);
    plan->begin();
    CHECK(r.outcome(plan->finish({1})).value().fatal());
    plan.reset();
    start.arrive_and_wait();
    r.engine->leave();
    r.engine.reset();
    CHECK(r.transport.expired());  // after a lost rank no object keeps the transport alive
  });
}

// Waits on every rank for an operation that not all ranks submit: every rank gets one error and
// continues. With `joins`, the last rank has joined instead; with `busy`, it computes for a while,
// and nothing fails.
void never_meets(int size, bool joins, bool busy) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    EngineConfig config;
    config.stall_warn_seconds = busy ? 0.2 : 0.05;
    Rank r(hub, rank, size, config);
    const bool last = rank == size - 1;
    std::vector<std::int32_t> a(10, 1), b(10, 1), c(10, 1);
    Op_ join;
    if (last && joins) join = r.engine->join({0})[0];
    if (last && busy) std::this_thread::sleep_for(std::chrono::seconds(1));
    if (!last || !joins) {
      const Op_ first = r.engine->submit(0, named(busy ? "both" : "step 7/" + std::to_string(rank), a));
      const Op_ second = busy ? nullptr : r.engine->submit(0, named(rank == 0 ? "x" : "y", b));
      wait_for(*first, *r.worker, -1, nullptr);
      const auto error = r.outcome(first);
      CHECK(busy == !error.has_value());
      if (error) {
        CHECK(error->kind() == ErrorKind::mismatch && r.outcome(second).value().kind() == ErrorKind::mismatch);
        const std::string what = error->what();
        CHECK(what.find("step 7/0") != std::string::npos && what.find("rank 0 has submitted") != std::string::npos);
      }
    }
    const Op_ last_join = join ? join : r.engine->join({0})[0];
    CHECK(!r.outcome(last_join));
    CHECK(!r.outcome(r.engine->submit(0, named("then", c))));
    check_data(c, size);
  });
}

// Rank 1 does not submit. Rank 0, or a rank that is not the coordinator, cancels the operation;
// then the name works again.
void stalls(int size, int silent_rank) {
  const auto hub = make_threads_hub(size);
  std::barrier step(size);
  on_ranks(size, [&](int rank) {
    EngineConfig config;
    config.stall_warn_seconds = 0;
    config.stall_fail_seconds = 0.2;
    Rank r(hub, rank, size, config);
    std::vector<std::int32_t> data(10, 1), other(10, 1);
    if (rank == silent_rank) {
      step.arrive_and_wait();
      // It fails here too: immediately if the verdict is known, otherwise when this rank reads it.
      const auto error = r.outcome(r.engine->submit(0, named("x", data)));
      CHECK(error && error->kind() == ErrorKind::left);
    } else {
      const auto error = r.outcome(r.engine->submit(0, named("x", data)));
      CHECK(error && error->kind() == ErrorKind::left);
      step.arrive_and_wait();
    }
    step.arrive_and_wait();
    // the next operation with that name is matched on all ranks
    CHECK(!r.outcome(r.engine->submit(0, named("x", other))));
    check_data(other, size);
    step.arrive_and_wait();
    r.engine->leave();
  });
}

// Destroys an engine without a message while operations are in flight.
void destroyed() {
  const auto hub = make_threads_hub(2);
  Rank r(hub, 1, 2);
  std::vector<std::int32_t> data(10, 1);
  const Op_ op = r.engine->submit(0, named("x", data));
  r.engine.reset();
  CHECK(r.outcome(op).value().kind() == ErrorKind::shut_down);
}

// Checks that an interrupted wait does not affect the operation.
void interrupted() {
  const auto hub = make_threads_hub(2);
  Rank r(hub, 1, 2);
  std::vector<std::int32_t> data(10, 1);
  const Op_ op = r.engine->submit(0, named("x", data));
  CHECK(thrown([&] { wait_for(*op, *r.worker, -1, [] { return true; }); }) == ErrorKind::interrupted);
  CHECK(!wait_for(*op, *r.worker, 0.01, nullptr) && !op->done());
}

// A process that only waits to be killed. It is created before there are threads.
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

// Ends the process of the last rank while the other ranks wait for it, in an operation or in a
// plan's step.
void a_process_ends(int size, bool in_a_step) {
  Victim victim;
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size);
    r.engine->watch(victim.processes, victim.as(size - 1));
    std::vector<std::int32_t> data(10, 1);
    const auto plan =
        r.engine->make_plan(0, "p", {{DType::int32, data.size(), data.data()}}, Op::sum, {}, {}, 1, nullptr, 0);
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

// Ends the process of a rank that had left: operations without that rank continue.
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
    // Rank 0 delays an operation until the processes have been checked several times.
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
  for (const bool idle_first : {false, true}) a_rank_dies(3, idle_first);
  for (const int size : {2, 3}) never_meets(size, false, false);
  never_meets(3, true, false);
  never_meets(3, false, true);
  stalls(3, 1);
  stalls(3, 0);  // without the coordinator, no rank confirms
  std::puts("engine, ends: all passed");
  return 0;
}
