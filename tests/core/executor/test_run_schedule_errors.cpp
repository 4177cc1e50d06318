// Tests errors while a schedule runs: ranks that disagree, ranks that are lost, and tasks that are
// cancelled.
#include <atomic>
#include <optional>

#include "schedules.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

template <class Body>
std::optional<Error> error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::unique_ptr<Task> allreduce(Seat& seat, std::vector<float>& data, std::string_view algorithm,
                                std::size_t segment = 1 << 20) {
  const auto schedule = schedule_for(Collective::allreduce, algorithm, seat.rank, seat.size);
  Layout layout = Layout::even(data.data(), data.size(), schedule->blocks, sizeof(float), segment);
  return seat.task(schedule, std::move(layout), nullptr, options_of({segment, 4, kLongestMessage}, DType::float32));
}

// Checks that the rank that gets less than expected reports it, and that the rank that gets more
// has an error from its transport. The first rank to fail cancels its task, and the other rank's
// data never arrives.
void sizes_differ(std::size_t count) {
  const auto hub = make_threads_hub(2);
  std::atomic<int> reported{0};
  on_ranks(2, [&](int rank) {
    Seat seat = seat_of(hub, rank, 2);
    std::vector<float> data(count + static_cast<std::size_t>(rank));
    const auto task = allreduce(seat, data, "all_to_all");
    const auto error = error_of([&] { finish(*task, seat.random); });
    threads_kill(*hub, rank);
    task->abandon();
    CHECK(error && error->ranks() == std::vector<int>{1 - rank});
    if (error->kind() == ErrorKind::peer_lost) return;
    ++reported;
    CHECK(error->kind() == (rank == 1 ? ErrorKind::mismatch : ErrorKind::transport));
    const std::string what = error->what();
    CHECK(rank == 0 || what.find(std::to_string(count * 4)) != std::string::npos);
    CHECK(what.find(std::to_string(count * 4 + 4)) != std::string::npos);
  });
  CHECK(reported >= 1);
}

// Kills one rank in the middle. A rank that notices cancels, and is lost to the other ranks in
// turn. Buffers are freed immediately.
void lost_in_transfer(std::string_view algorithm, unsigned seed) {
  constexpr int kSize = 4;
  const int victim = static_cast<int>(seed % kSize);
  const auto hub = make_threads_hub(kSize);
  std::atomic<int> failed{0};
  on_ranks(kSize, [&](int rank) {
    Seat seat = seat_of(hub, rank, kSize, seed);
    auto data = std::make_unique<std::vector<float>>(200000);
    auto task = allreduce(seat, *data, algorithm, 5000);
    const auto error = error_of([&] {
      for (unsigned steps = rank == victim ? 3 + seed : ~0U; steps > 0; --steps) {
        const Progress progress = task->advance();
        if (progress == Progress::done) return;
        if (progress == Progress::blocked) std::this_thread::yield();
      }
    });
    threads_kill(*hub, rank);
    if (error) {
      CHECK(error->kind() == ErrorKind::peer_lost && error->ranks().size() == 1);
      ++failed;
    }
    if (seed % 2) task->abandon();
    if (seed % 3) {
      task.reset();  // without a message first
      data.reset();
    } else {
      task->abandon();
      data.reset();
      CHECK(error_of([&] { (void)task->advance(); })->kind() == ErrorKind::internal);
    }
    CHECK(seat.transport->in_flight() == 0);
  });
  CHECK(failed >= 1);
}

// Drops a task: nothing remains in the transport, and other tasks continue.
void dropped() {
  on_seats(2, [&](Seat& seat) {
    std::vector<float> data(50000, 1.0F), other(50000, 1.0F);
    TagStream others(100, 2);
    {
      const auto task = allreduce(seat, data, "ring");
      if (seat.rank == 0) (void)task->advance();
    }
    std::swap(seat.tags, others);
    finish(*allreduce(seat, other, "ring"), seat.random);
    CHECK(other == std::vector<float>(50000, 2.0F));
  });
}

void refused() {
  const auto hub = make_threads_hub(1);
  Seat seat = seat_of(hub, 0, 1);
  std::vector<float> data(10);
  const auto kind_of = [&](Schedule schedule, Layout layout, RunOptions options) {
    const auto shared = std::make_shared<const Schedule>(schedule);
    const auto error = error_of([&] { (void)seat.task(shared, layout, nullptr, options); });
    CHECK(error);
    return error->kind();
  };
  const auto with = [](std::vector<Step> steps) {
    Schedule schedule;
    schedule.algorithm = "wrong";
    schedule.rounds = {steps};
    return schedule;
  };
  const Layout layout = Layout::even(data.data(), 10, 1, sizeof(float), 10);
  const RunOptions options = options_of({10, 1, 8}, DType::float32);
  const Step wrong[] = {send(1, 0),          send(-1, 0),      receive(0, 1),
                        reduce(0, -1, true), copy_block(2, 0), combine(-1, 0, true)};
  for (const Step& step : wrong) {
    CHECK(kind_of(with({step}), layout, options) == ErrorKind::invalid);
  }
  CHECK(kind_of(with({}), Layout::even(data.data(), 10, 2, sizeof(float), 10), options) == ErrorKind::internal);
  CHECK(kind_of(with({reduce(0, 0, true)}), layout, options_of({10, 1, 8}, DType::float64)) == ErrorKind::internal);
  Schedule larger = with({});
  larger.size = 2;
  CHECK(kind_of(larger, layout, options) == ErrorKind::internal);
  RunOptions scaled = options;
  scaled.pre.factor = 2;
  Layout listed = Layout::listed({{reinterpret_cast<std::byte*>(data.data()), 10}}, sizeof(float), 10);
  CHECK(kind_of(with({}), listed, scaled) == ErrorKind::internal);
  // These blocks should have equal sizes: only a copy between them shows the error.
  Schedule copying = with({copy_block(0, 1)});
  copying.blocks = 2;
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  Layout unequal = Layout::listed({{bytes, 3}, {bytes + 12, 4}}, 4, 10);
  const auto task = seat.task(std::make_shared<const Schedule>(copying), std::move(unequal), nullptr, options);
  CHECK(error_of([&] { finish(*task, seat.random); })->kind() == ErrorKind::mismatch);
}

}  // namespace

int main() {
  for (const std::size_t count : {1U, 100U, 50000U}) sizes_differ(count);
  for (unsigned seed = 0; seed < 24; ++seed) {
    for (const std::string_view algorithm : {"all_to_all", "ring", "tree"}) lost_in_transfer(algorithm, seed);
  }
  dropped();
  refused();
}
