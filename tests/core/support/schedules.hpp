// Schedules on the threads transport, with ranks as threads: the common set-up of the executor's
// tests.
#pragma once

#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "executor/run_schedule.hpp"
#include "schedule/registry.hpp"
#include "transport/threads.hpp"

namespace ringcomm::testing {

inline std::vector<int> everybody(int size) {
  std::vector<int> peers(static_cast<std::size_t>(size));
  std::iota(peers.begin(), peers.end(), 0);
  return peers;
}

// Runs a task to its end with random delays: sometimes slowly, sometimes polling all the time.
inline void finish(Task& task, std::mt19937& random) {
  for (;;) {
    const Progress progress = task.advance();
    if (progress == Progress::done) return;
    if (progress == Progress::blocked || random() % 4 == 0) std::this_thread::yield();
    if (random() % 4096 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
  }
}

// The state of one rank in a test: its transport, and so few tags that they are reused.
struct Seat {
  int rank, size;
  std::unique_ptr<Transport> transport;
  std::vector<int> peers;
  TagStream tags{5, 3};
  std::mt19937 random;

  std::unique_ptr<Task> task(std::shared_ptr<const Schedule> schedule, Layout layout, const void* source,
                             RunOptions options) {
    return make_run_schedule(*transport, std::move(schedule), peers, std::move(layout), source, tags,
                             std::move(options));
  }
  void run(std::shared_ptr<const Schedule> schedule, Layout layout, const void* source, RunOptions options) {
    finish(*task(std::move(schedule), std::move(layout), source, std::move(options)), random);
  }
};

inline Seat seat_of(std::shared_ptr<ThreadsHub> hub, int rank, int size, unsigned seed = 0) {
  std::mt19937 random(seed + static_cast<unsigned>(rank));
  return {rank, size, make_threads_transport(std::move(hub), rank), everybody(size), {5, 3}, random};
}

template <class Body>
void on_seats(int size, Body body) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    Seat seat = seat_of(hub, rank, size);
    body(seat);
    CHECK(seat.transport->in_flight() == 0);
  });
}

// A call's cut: elements of a segment, instances in flight, and bytes of the longest message.
struct Cut {
  std::size_t segment, window, longest_message;
};

inline RunOptions options_of(const Cut& cut, DType dtype, Op op = Op::sum) {
  RunOptions options;
  options.dtype = dtype;
  options.op = op;
  options.window = cut.window;
  options.longest_message = cut.longest_message;
  return options;
}

}  // namespace ringcomm::testing
