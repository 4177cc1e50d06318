// Tests the comparison of calls between hosts, and the inline data within it: by each rank, and by
// hosts.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/text.hpp"
#include "host_ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using enum Collective;

ChannelConfig slow_network() {  // slow enough that some data is sent inline
  ChannelConfig config;
  config.network.between.alpha = config.network.within.alpha = 1e-4;
  config.network.between.beta = config.network.within.beta = 1e-9;
  return config;
}

template <class T>
Call call_of(Collective collective, int size, DType dtype, std::size_t count, const std::vector<T>& input,
             std::vector<T>& output) {
  Call call;
  call.collective = collective;
  call.dtype = dtype;
  call.input = input.data();
  call.output = output.data();
  call.count = count;
  call.root = size / 2;
  if (collective != allgather && collective != reducescatter) return call;
  for (int rank = 0; rank < size; ++rank) call.counts.push_back(count + static_cast<std::size_t>(rank % 3));
  if (collective == allgather) call.count = 0;
  return call;
}

template <class T>
T small_number(DType dtype, std::size_t n) {  // from 0 to 10
  constexpr std::array<std::uint16_t, 11> kHalves{0,      0x3C00, 0x4000, 0x4200, 0x4400, 0x4500,
                                                  0x4600, 0x4700, 0x4800, 0x4880, 0x4900};
  if (dtype == DType::boolean) return T(n % 2);
  return dtype == DType::float16 ? T(kHalves[n]) : T(n);
}

// Runs every collective except alltoall with inline data. The result equals that of a named
// algorithm: sums of small integers, exact in any order, and equal bits on all ranks.
template <class T>
void rides(RankContext& context, DType dtype, Wire wire = {}) {
  const int size = context.size;
  const auto all = static_cast<std::size_t>(size) * 60;
  for (const std::size_t count : {0, 1, 5, 40}) {
    for (const Collective collective : {allreduce, reduce, broadcast, allgather, reducescatter, barrier}) {
      for (const Op op : {Op::sum, Op::max, Op::average}) {
        if (dtype == DType::boolean && op == Op::average) continue;
        std::vector<T> input(all), small(all, T(99)), named(all, T(99));
        for (std::size_t i = 0; i < all; ++i)
          input[i] = small_number<T>(dtype, (i * 3 + static_cast<std::size_t>(context.rank) * 5) % 11);
        Call call = call_of(collective, size, dtype, count, input, small);
        call.op = op;
        call.wire = wire;
        if (computes(collective) && info(dtype).floating) call.pre.factor = 0.5;
        Call again = call;
        again.output = named.data();
        again.algorithm = algorithm_names(collective).front();
        CHECK(count > 5 || context.channel.choose(call).route == Route::inline_data);
        CHECK(context.channel.choose(again).route != Route::inline_data);
        context.channel.run(call, nullptr);
        context.channel.run(again, nullptr);
        const bool has = collective != reduce || context.rank == call.root;
        CHECK(!has || small == named);
        const bool everywhere = collective == allreduce || collective == broadcast || collective == allgather;
        CHECK(!everywhere || context.same_everywhere(small.data(), all * sizeof(T)));
      }
    }
  }
}

// Mixes in-place calls and calls without inline data; each rank in turn is late.
void mixed(RankContext& context) {
  const int size = context.size;
  for (int turn = 0; turn < 60; ++turn) {
    if (turn % 7 == 3 && context.rank == turn % size) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::size_t count = turn % 3 == 2 ? 20'000 : turn % 5;
    std::vector<float> data(count, static_cast<float>(context.rank + turn));
    Call call = call_of(allreduce, size, DType::float32, count, data, data);
    context.channel.run(call, nullptr);
    const float sum = static_cast<float>(size * turn + size * (size - 1) / 2);
    CHECK(std::all_of(data.begin(), data.end(), [&](float x) { return x == sum; }));
  }
}

// Makes calls that differ in size, collective or dtype. Every rank gets an error, with or without
// inline data, and the next call works.
void disagreeing(RankContext& context) {
  const int size = context.size;
  for (int turn = 0; turn < 10 * size; ++turn) {
    const bool odd = context.rank == turn / 10;
    std::vector<std::int32_t> input(1 << 16, 1), output(1 << 16);
    Call call = call_of(allreduce, size, DType::int32, 5, input, output);
    switch (turn % 10) {
      case 0:
        call.count = odd ? 6 : 5;
        break;
      case 1:
        call.count = odd ? input.size() : 5;
        break;
      case 2:
        call.count = odd ? 5 : input.size();
        break;
      case 3:
        call.collective = odd ? broadcast : allreduce;
        break;
      case 4:
        call.dtype = odd ? DType::float32 : DType::int32;
        break;
      case 5:
        call.op = odd ? Op::max : Op::sum;
        break;
      case 6:
        call.algorithm = odd ? "ring" : "";
        break;
      case 7:
        call.name = odd ? "a name that only this rank gives" : "";
        break;
      case 8:
        call.shape = static_cast<std::uint64_t>(context.rank % 2);
        break;  // the ranks with this shape share a host, or are on every host
      default:
        call.collective = barrier;
        call.algorithm = odd ? "dissemination" : "";
        break;
    }
    std::optional<Error> error;
    try {
      context.channel.run(call, nullptr);
    } catch (const Error& caught) {
      error = caught;
    }
    const bool may = turn % 10 == 7;
    CHECK(may == !error);
    CHECK(!may || std::all_of(output.begin(), output.begin() + 5, [&](std::int32_t x) { return x == size; }));
    CHECK(!error || error->kind() == ErrorKind::mismatch);
    CHECK(context.same_text(error ? error->what() : ""));
    Call next = call_of(allreduce, size, DType::int32, 7, input, output);
    context.channel.run(next, nullptr);
    CHECK(std::all_of(output.begin(), output.begin() + 7, [&](std::int32_t x) { return x == size; }));
  }
}

// Calls all-to-all with counts that disagree for a pair of ranks. The error names the pair on every
// rank, and the correct call works afterwards. Ranks may have blocks of equal size.
void disagreeing_counts(RankContext& context) {
  const auto ranks = static_cast<std::size_t>(context.size), me = static_cast<std::size_t>(context.rank);
  for (std::size_t turn = 0; turn < 3 * ranks; ++turn) {
    // number of ranks with even blocks, from rank 0 on
    const std::size_t from = turn % ranks, to = turn * 2 % ranks, even = turn / ranks;
    const auto count = [&](std::size_t sender, std::size_t receiver) {
      return sender < even ? 2 : 1 + (sender * 3 + receiver) % 4;
    };
    std::vector<std::int32_t> input(8 * ranks, context.rank), output(8 * ranks, -1);
    Call call = call_of(alltoall, context.size, DType::int32, 1, input, output);
    for (std::size_t other = 0; other < ranks; ++other) {
      call.counts.push_back(count(me, other));
      call.receive_counts.push_back(count(other, me));
    }
    Call wrong = call;
    if (me == to) wrong.receive_counts[from] += 5;
    std::string text;
    try {
      context.channel.run(wrong, nullptr);
    } catch (const Error& error) {
      text = error.what();
      CHECK(error.kind() == ErrorKind::mismatch && !error.ranks().empty());
    }
    const std::size_t sent = count(from, to);
    const std::string whom = from == to ? "itself, but" : concat("rank ", to, ", which");
    CHECK(text.find(concat("rank ", from, " sends ", sent, sent == 1 ? " element to " : " elements to ", whom,
                           " expects ", sent + 5, ". ")) != std::string::npos);
    CHECK(context.same_text(text));
    CHECK(output[0] == -1);
    context.channel.run(call, nullptr);
    std::size_t first = 0;
    for (std::size_t other = 0; other < ranks; ++other) {
      for (std::size_t i = 0; i < count(other, me); ++i) CHECK(output[first++] == static_cast<std::int32_t>(other));
    }
  }
}

void all(RankContext& context) {
  rides<std::int32_t>(context, DType::int32);
  rides<double>(context, DType::float64);
  rides<std::uint8_t>(context, DType::uint8);
  rides<std::uint8_t>(context, DType::boolean);
  rides<std::uint16_t>(context, DType::float16);
  rides<float>(context, DType::float32, find_wire("bfloat16"));
  mixed(context);
  disagreeing(context);
  disagreeing_counts(context);
}

// Checks that a host's link carries a small call once per other host, or once per round, for any
// number of ranks on the host.
void carries_little(const std::vector<int>& host_of, std::size_t hosts) {
  on_hosts(host_of, slow_network(), [&](RankContext& context, Links& links) {
    for (int turn = 0; turn < 2; ++turn) {  // the first call also proves schedules, so it is not counted
      context.barrier.arrive_and_wait();
      if (context.rank == 0) links.reset();
      context.barrier.arrive_and_wait();
      std::vector<float> data(16, 1);
      Call call = call_of(allreduce, context.size, DType::float32, data.size(), data, data);
      context.channel.run(call, nullptr);
      CHECK(data[0] == static_cast<float>(context.size));
      context.barrier.arrive_and_wait();
      const std::size_t pieces =
          std::has_single_bit(hosts) ? static_cast<std::size_t>(std::countr_zero(hosts)) : hosts - 1;
      for (std::size_t host = 0; host < hosts; ++host)
        CHECK(links.into(static_cast<int>(host)) == pieces * (16 * sizeof(float) + 16));
      context.barrier.arrive_and_wait();
    }
  });
}

// Runs a call as a worker does, without the naps that the task asks for.
void run_as_worker(Channel& channel, const Call& call) {
  const auto task = channel.start(Call(call));
  try {
    while (task->advance() != Progress::done) std::this_thread::yield();
  } catch (const Error&) {
    task->abandon();
    throw;
  }
}

// Stops one rank, and later the ranks that learn of it. Every rank names the rank that left first,
// in later calls too.
void departing(RankContext& context, int leaver, bool as_worker) {
  std::vector<float> data(1, 1);
  const Call call = call_of(allreduce, context.size, DType::float32, 1, data, data);
  context.channel.run(call, nullptr);
  for (int again = 0; again < 3 && context.rank != leaver; ++again) {
    std::optional<Error> error;
    try {
      as_worker ? run_as_worker(context.channel, call) : context.channel.run(call, nullptr);
    } catch (const Error& caught) {
      error = caught;
    }
    CHECK(error && error->kind() == ErrorKind::left && !error->ranks().empty());
    CHECK(std::find(error->ranks().begin(), error->ranks().end(), leaver) != error->ranks().end());
  }
  context.channel.leave();
}

// Fails one rank fatally: the ranks of its host learn it immediately, and the failed rank reports
// its own error.
void failing(RankContext& context, int who, const std::vector<int>& host_of) {
  const auto host = [&](int rank) { return host_of[static_cast<std::size_t>(rank)]; };
  std::vector<float> data(1, 1);
  const Call call = call_of(allreduce, context.size, DType::float32, 1, data, data);
  context.channel.run(call, nullptr);
  if (context.rank == who) context.channel.end_after(Error(ErrorKind::transport, "a link broke"));
  if (host(context.rank) != host(who)) return;
  std::optional<Error> error;
  try {
    context.channel.run(call, nullptr);
  } catch (const Error& caught) {
    error = caught;
  }
  CHECK(error && error->kind() == (context.rank == who ? ErrorKind::transport : ErrorKind::peer_lost));
  CHECK(context.rank == who || std::ranges::count(error->ranks(), who) == 1);
}

// Interrupts a rank in a call: it takes part in no later call, and its peers do not wait for it.
void interrupted(RankContext& context) {
  std::vector<float> data(100'000, 1);
  const Call call = call_of(allreduce, context.size, DType::float32, data.size(), data, data);
  context.channel.run(call, nullptr);
  const int who = context.size - 1;
  std::optional<Error> error;
  const auto run = [&](bool (*was_interrupted)()) {
    error.reset();
    try {
      context.channel.run(call, was_interrupted);
    } catch (const Error& caught) {
      error = caught;
    }
  };
  if (context.rank == who) {
    run([] { return true; });
    CHECK(error && error->kind() == ErrorKind::interrupted);
    context.barrier.arrive_and_wait();
    run(nullptr);
    CHECK(error && error->kind() == ErrorKind::transport);
  } else {
    context.barrier.arrive_and_wait();
    run(nullptr);
    CHECK(error && error->kind() == ErrorKind::peer_lost && std::ranges::count(error->ranks(), who) == 1);
  }
}

}  // namespace

int main() {
  for (int size = 2; size <= 9; ++size) with_channels(size, false, slow_network(), all);
  for (const auto& host_of : kHostLayouts) {
    if (std::count(host_of.begin(), host_of.end(), host_of[0]) < static_cast<long>(host_of.size())) {
      on_hosts(host_of, slow_network(), [](RankContext& context, Links&) { all(context); });
    }
  }
  for (int leaver = 0; leaver < 6; ++leaver) {
    for (const bool as_worker : {false, true}) {
      on_hosts({0, 0, 1, 2, 2, 2}, slow_network(),
               [&](RankContext& context, Links&) { departing(context, leaver, as_worker); });
    }
  }
  for (const int who : {0, 1, 3, 5}) {
    const std::vector<int> host_of{0, 0, 1, 2, 2, 2};
    on_hosts(host_of, slow_network(), [&](RankContext& context, Links&) { failing(context, who, host_of); });
  }
  for (const int size : {2, 3}) with_channels(size, true, {}, interrupted);
  carries_little({0, 0, 1, 1}, 2);
  carries_little({0, 0, 0, 1, 1, 2}, 3);
  carries_little({0, 1, 2, 3, 4, 0, 1, 2, 3}, 5);
  carries_little({0, 1, 2, 3, 0, 1, 2, 3, 0}, 4);
  std::puts("comparison: all passed");
}
