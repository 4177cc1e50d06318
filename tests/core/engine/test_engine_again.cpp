// Tests requests that are prepared once and submitted repeatedly, after operations that were held,
// dropped, or failed.
#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

struct Again {
  std::shared_ptr<OperationState> prepared;
  std::vector<std::int32_t> data;
  Op_ op;
};

// Prepares requests. `odd`: one of this rank's requests has a different length than on the other
// ranks.
std::vector<Again> prepare(std::size_t names, bool odd) {
  std::vector<Again> all(names);
  for (std::size_t i = 0; i < names; ++i) {
    std::vector<std::int32_t> like(i % 7 + (odd && i == 3));
    all[i].prepared = Engine::prepare(named("name " + std::to_string(i), like));
    all[i].data.resize(like.size());
  }
  return all;
}

void rounds(int size, bool threaded, std::size_t odd_rounds) {
  constexpr std::size_t kNames = 12;
  const auto hub = make_threads_hub(size);
  std::barrier<> end(size);
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size, {}, threaded);
    Random random(static_cast<std::uint64_t>(rank));
    std::vector<Again> all = prepare(kNames, false), odd = prepare(kNames, rank == size - 1);
    std::vector<Op_> held;
    for (std::size_t round = 0; round < 30; ++round) {
      const bool wrong = size > 1 && round < odd_rounds && round % 3 == 1;
      std::vector<Again>& these = wrong ? odd : all;
      std::vector<std::size_t> order(kNames);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        Again& one = these[i];
        std::fill(one.data.begin(), one.data.end(), static_cast<std::int32_t>(round) + rank);
        one.op = r.engine->submit(0, one.prepared, one.data.data());
        CHECK(one.prepared && one.op);
      }
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        Again& one = these[i];
        const std::optional<Error> error = r.outcome(one.op);
        CHECK(static_cast<bool>(error) == (wrong && i == 3));
        if (error) CHECK(error->kind() == ErrorKind::mismatch);
        const auto sum = static_cast<std::int32_t>(round) * size + size * (size - 1) / 2;
        if (!error) check_data(one.data, sum);
        if (below(random, 3) == 0) held.push_back(one.op);
        one.op.reset();
      }
      if (below(random, 4) == 0) held.clear();
      for (const Op_& op : held) CHECK(op->done());
    }
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// Submits a name that is in flight, which is refused. The prepared request can be submitted later.
void refused() {
  constexpr int kSize = 2;
  const auto hub = make_threads_hub(kSize);
  std::barrier<> both(kSize);
  on_ranks(kSize, [&](int rank) {
    Rank r(hub, rank, kSize);
    std::vector<std::int32_t> data(4, 1), other(4, 1);
    auto prepared = Engine::prepare(named("x", data));
    if (rank == 0) {
      for (int turn = 0; turn < 3; ++turn) {
        const Op_ first = r.engine->submit(0, prepared, data.data());
        for (int again = 0; again < 2; ++again) {
          CHECK(thrown([&] { r.engine->submit(0, prepared, other.data()); }) == ErrorKind::invalid);
        }
        both.arrive_and_wait();
        CHECK(!r.outcome(first));
        check_data(data, 2 << turn);
        check_data(other, 1);
      }
    } else {
      for (int turn = 0; turn < 3; ++turn) {
        both.arrive_and_wait();
        CHECK(!r.outcome(r.engine->submit(0, prepared, data.data())));
      }
    }
    both.arrive_and_wait();
    r.engine->leave();
    CHECK(thrown([&] { r.engine->submit(0, prepared, data.data()); }) == ErrorKind::shut_down);
  });
}

}  // namespace

int main() {
  for (int size = 1; size <= 9; ++size) rounds(size, true, size % 2 ? 30 : 0);
  for (const int size : {1, 3}) rounds(size, false, 30);
  refused();
  std::puts("engine again: all passed");
}
