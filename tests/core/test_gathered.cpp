// The comparison of calls by messages, and the small data that rides with it.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "ranks.hpp"
#include "task/gathered.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using enum Collective;

void run(Task& task) {
  while (task.advance() != Progress::done) std::this_thread::yield();
}

// Pieces of every size, empty and full ones, reach every rank; one digest that differs is seen everywhere.
void pieces(int size) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    const auto transport = make_threads_transport(hub, rank);
    std::vector<int> peers(static_cast<std::size_t>(size));
    std::iota(peers.begin(), peers.end(), 0);
    for (int turn = 0; turn < 6; ++turn) {
      const std::size_t most = turn == 0 ? 0 : 100;
      const auto length = [&](int of) { return (static_cast<std::size_t>(of * 37 + turn * 50)) % (most + 1); };
      Gathering task(*transport, peers, rank, turn % 2, most);
      std::fill_n(task.mine(), length(rank), static_cast<std::byte>(rank + turn));
      const bool odd = turn % 3 == 2 && rank == turn % size;
      task.give(odd ? 7 : 5, length(rank));
      run(task);
      CHECK(task.alike() == (turn % 3 != 2 || size == 1));
      for (int of = 0; of < size; ++of) {
        const std::byte* const piece = task.pieces()[static_cast<std::size_t>(of)];
        CHECK(std::all_of(piece, piece + length(of), [&](std::byte b) { return b == static_cast<std::byte>(of + turn); }));
      }
    }
  });
}

ChannelConfig slow_network() {  // so that some bytes ride
  ChannelConfig config;
  config.network.between.alpha = config.network.within.alpha = 1e-4;
  config.network.between.beta = config.network.within.beta = 1e-9;
  return config;
}

Call call_of(Collective collective, int size, std::size_t count, const std::vector<std::int32_t>& input, std::vector<std::int32_t>& output) {
  Call call;
  call.collective = collective;
  call.dtype = DType::int32;
  call.input = input.data();
  call.output = output.data();
  call.count = count;
  call.root = size - 1;
  if (collective == allgather || collective == reducescatter) call.counts.assign(static_cast<std::size_t>(size), count);
  return call;
}

// Every collective but alltoall rides when it is small, and gives what it gives by a named algorithm.
void rides(int size) {
  with_channels(size, false, slow_network(), [&](RankContext& context) {
    for (const std::size_t count : {0, 1, 5, 40}) {
      for (const Collective collective : {allreduce, reduce, broadcast, allgather, reducescatter, barrier}) {
        const std::size_t all = count * static_cast<std::size_t>(size);
        std::vector<std::int32_t> input(all), small(all, -1), named(all, -1);
        for (std::size_t i = 0; i < all; ++i) input[i] = static_cast<std::int32_t>(i * 3 + static_cast<std::size_t>(context.rank));
        Call call = call_of(collective, size, count, input, small);
        CHECK(context.channel.choose(call) == kGathered);
        context.channel.run(call, nullptr);
        call.output = named.data();
        call.algorithm = algorithm_names(collective).front();
        CHECK(context.channel.choose(call) == call.algorithm);
        context.channel.run(call, nullptr);
        const bool has = collective != reduce || context.rank == size - 1;
        CHECK(!has || small == named);
      }
    }
    std::vector<std::int32_t> large(1 << 16, 1), result(1 << 16);
    Call call = call_of(allreduce, size, large.size(), large, result);
    CHECK(context.channel.choose(call) != kGathered);
    context.channel.run(call, nullptr);
    CHECK(std::all_of(result.begin(), result.end(), [&](std::int32_t x) { return x == size; }));
  });
}

// Calls that differ, in size, collective or dtype: an error on every rank, whether data rode or not, and the next call works.
void disagreeing(int size) {
  with_channels(size, false, slow_network(), [&](RankContext& context) {
    const bool odd = context.rank == size / 2;
    std::vector<std::int32_t> input(1 << 16, 1), output(1 << 16);
    for (int turn = 0; turn < 8; ++turn) {
      Call call = call_of(allreduce, size, 5, input, output);
      if (turn == 0 && odd) call.count = 6;
      if (turn == 1 && odd) call.count = input.size();
      if (turn == 2) call.count = odd ? 5 : input.size();
      if (turn == 3 && odd) call.collective = broadcast;
      if (turn == 4 && odd) call.dtype = DType::float32;
      if (turn == 5 && odd) call.op = Op::max;
      if (turn == 6 && odd) call.algorithm = "ring";
      if (turn == 7 && odd) call.name = "a name that only this rank gives";
      std::optional<Error> error;
      try {
        context.channel.run(call, nullptr);
      } catch (const Error& caught) {
        error = caught;
      }
      CHECK((turn == 7) == !error);
      CHECK(!error || error->kind() == ErrorKind::mismatch);
      CHECK(context.same_text(error ? error->what() : ""));
      Call next = call_of(allreduce, size, 7, input, output);
      context.channel.run(next, nullptr);
      CHECK(std::all_of(output.begin(), output.begin() + 7, [&](std::int32_t x) { return x == size; }));
    }
  });
}

}  // namespace

int main() {
  for (int size = 1; size <= 9; ++size) pieces(size);
  for (const int size : {16, 33}) pieces(size);
  for (int size = 2; size <= 9; ++size) {
    rides(size);
    disagreeing(size);
  }
  std::puts("gathered: all passed");
}
