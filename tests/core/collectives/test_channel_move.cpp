// Tests reduce, broadcast, allgather, reducescatter, alltoall and barrier: every algorithm, root
// and shape of blocks. Then tests ranks that disagree, leave or die.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using Value = std::int32_t;

Value value(int rank, std::size_t i) { return static_cast<Value>(rank * 1'000'003 + static_cast<int>(i) * 17 + 1); }

Value sum_of(int size, std::size_t i) {
  Value sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += value(rank, i);
  return sum;
}

Call make(Collective collective, const std::string& route, int root = 0) {
  Call call;
  call.collective = collective;
  call.dtype = DType::int32;
  call.algorithm = route;
  call.root = root;
  return call;
}

std::vector<Value> values(int rank, std::size_t count) {
  std::vector<Value> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = value(rank, i);
  return out;
}

const std::vector<std::size_t> kCounts{0, 1, 5, 8, 1009, 50'000};

void reduce(RankContext& context, const std::string& route) {
  for (int root = 0; root < context.size; ++root) {
    for (const std::size_t count : kCounts) {
      auto input = values(context.rank, count);
      std::vector<Value> output(count, -1);
      Call call = make(Collective::reduce, route, root);
      call.count = count;
      call.input = input.data();
      call.output = context.rank == root ? output.data() : nullptr;
      context.channel.run(call, nullptr);
      CHECK(input == values(context.rank, count));
      for (std::size_t i = 0; context.rank == root && i < count; ++i) CHECK(output[i] == sum_of(context.size, i));
    }
  }
}

void broadcast(RankContext& context, const std::string& route) {
  for (int root = 0; root < context.size; ++root) {
    for (const std::size_t count : kCounts) {
      auto buffer = values(context.rank, count);
      Call call = make(Collective::broadcast, route, root);
      call.count = count;
      call.input = call.output = buffer.data();
      context.channel.run(call, nullptr);
      CHECK(buffer == values(root, count));
    }
  }
}

// Returns the size of rank r's block. Shape 0: equal blocks; 1: unequal, some empty; 2: all data on
// one rank; 3: no data.
std::size_t block(int shape, int size, int rank) {
  switch (shape) {
    case 0:
      return 7;
    case 1:
      return static_cast<std::size_t>((rank * 5) % 4) * 301;
    case 2:
      return rank == size / 2 ? 70'001 : 0;
    default:
      return 0;
  }
}

std::vector<std::size_t> blocks(int shape, int size) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(block(shape, size, rank));
  return counts;
}

void allgather(RankContext& context, const std::string& route) {
  for (int shape = 0; shape < 4; ++shape) {
    const auto counts = blocks(shape, context.size);
    const auto input = values(context.rank, counts[static_cast<std::size_t>(context.rank)]);
    std::vector<Value> output(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), -1);
    Call call = make(Collective::allgather, route);
    call.counts = counts;
    call.input = input.data();
    call.output = output.data();
    context.channel.run(call, nullptr);
    std::size_t next = 0;
    for (int rank = 0; rank < context.size; ++rank) {
      for (std::size_t i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) CHECK(output[next++] == value(rank, i));
    }
    std::vector<std::vector<Value>> parts;
    call.output = nullptr;
    for (const std::size_t count : counts) call.output_per_rank.push_back(parts.emplace_back(count, -1).data());
    context.channel.run(call, nullptr);
    for (int rank = 0; rank < context.size; ++rank)
      CHECK(parts[static_cast<std::size_t>(rank)] == values(rank, counts[static_cast<std::size_t>(rank)]));
    Received received;
    Call unknown = make(Collective::allgather, route);
    unknown.input = input.data();
    unknown.count = input.size();
    unknown.received = &received;
    context.channel.run(unknown, nullptr);
    CHECK(received.counts == counts && received.output_bytes == output.size() * sizeof(Value));
    CHECK(output.empty() || std::memcmp(received.output.get(), output.data(), received.output_bytes) == 0);
  }
}

void reducescatter(RankContext& context, const std::string& route) {
  for (int shape = 0; shape < 4; ++shape) {
    const auto counts = blocks(shape, context.size);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const auto input = values(context.rank, total);
    const std::size_t mine = counts[static_cast<std::size_t>(context.rank)];
    std::vector<Value> output(mine, -1);
    Call call = make(Collective::reducescatter, route);
    call.counts = counts;
    call.input = input.data();
    call.output = output.data();
    context.channel.run(call, nullptr);
    CHECK(input == values(context.rank, total));
    const std::size_t first = std::accumulate(counts.begin(), counts.begin() + context.rank, std::size_t{0});
    for (std::size_t i = 0; i < mine; ++i) CHECK(output[i] == sum_of(context.size, first + i));
  }
}

// Returns the size of the block from rank a to rank b; shape 1 differs per pair, some empty.
std::size_t pair_block(int shape, int a, int b) {
  if (shape == 0) return 5;
  if (shape == 1) return static_cast<std::size_t>((a * 3 + b * 2) % 4) * 777;
  return 0;
}

void alltoall(RankContext& context, const std::string& route) {
  const Algorithm* algorithm = route.empty() ? nullptr : find_algorithm(Collective::alltoall, route);
  for (int shape = 0; shape < 3; ++shape) {
    if (algorithm && algorithm->equal_blocks && shape == 1) continue;
    for (const bool in_place : {false, true}) {
      if (in_place && shape == 1) continue;
      Call call = make(Collective::alltoall, route);
      std::vector<Value> input;
      for (int peer = 0; peer < context.size; ++peer) {
        call.counts.push_back(pair_block(shape, context.rank, peer));
        call.receive_counts.push_back(pair_block(shape, peer, context.rank));
        for (std::size_t i = 0; i < call.counts.back(); ++i) input.push_back(value(context.rank * 16 + peer, i));
      }
      std::vector<Value> output(std::accumulate(call.receive_counts.begin(), call.receive_counts.end(), std::size_t{0}),
                                -1);
      call.input = input.data();
      call.output = in_place ? input.data() : output.data();
      context.channel.run(call, nullptr);
      const auto& result = in_place ? input : output;
      std::size_t next = 0;
      for (int peer = 0; peer < context.size; ++peer) {
        for (std::size_t i = 0; i < call.receive_counts[static_cast<std::size_t>(peer)]; ++i) {
          CHECK(result[next++] == value(peer * 16 + context.rank, i));
        }
      }
    }
  }
}

void barriers(RankContext& context, const std::string& route, std::atomic<int>& arrived) {
  for (int i = 0; i < 20; ++i) {
    if ((context.rank + i) % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    arrived.fetch_add(1);
    context.channel.run(make(Collective::barrier, route), nullptr);
    CHECK(arrived.load() >= context.size * (i + 1));
    context.barrier.arrive_and_wait();
  }
  context.barrier.arrive_and_wait();
  if (context.rank == 0) arrived = 0;
  context.barrier.arrive_and_wait();
}

// Calls with different arguments on one rank: every rank gets the same typed error, and the next
// call works.
void mismatches(RankContext& context) {
  const int odd = context.size - 1;
  const auto attempt = [&](const char* word, auto change) {
    std::vector<Value> data(12, 1), out(12 * static_cast<std::size_t>(context.size));
    Call call = make(Collective::allreduce, "");
    call.name = "weights";
    call.count = 4;
    call.input = call.output = data.data();
    if (context.rank == odd) change(call, out);
    std::string why;
    try {
      context.channel.run(call, nullptr);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::mismatch);
      why = error.what();
    }
    if (why.find(word) == std::string::npos) std::fprintf(stderr, "no '%s' in: %s\n", word, why.c_str());
    CHECK(why.find(word) != std::string::npos);
    CHECK(why.find(std::to_string(odd)) != std::string::npos);
    CHECK(context.same_text(why));
    std::vector<Value> good(9, 2);
    Call next = make(Collective::allreduce, "");
    next.count = good.size();
    next.input = next.output = good.data();
    context.channel.run(next, nullptr);
    CHECK(std::all_of(good.begin(), good.end(), [&](Value v) { return v == 2 * context.size; }));
  };
  attempt("dtype", [](Call& call, auto&) { call.dtype = DType::float32; });
  attempt("op", [](Call& call, auto&) { call.op = Op::max; });
  attempt("weights", [](Call& call, auto&) { call.count = 3; });
  attempt("algorithm", [](Call& call, auto&) { call.algorithm = "ring"; });
  attempt("scale", [](Call& call, auto&) { call.pre.factor = 2; });
  attempt("name", [](Call& call, auto&) { call.name = "biases"; });
  attempt("broadcast", [](Call& call, auto&) { call.collective = Collective::broadcast; });
  attempt("allgather", [&](Call& call, auto& out) {
    call.collective = Collective::allgather;
    call.counts.assign(static_cast<std::size_t>(context.size), 4);
    call.output = out.data();
  });
}

void departure(RankContext& context) {
  if (context.rank == 0) {
    context.channel.leave();
    return;
  }
  Value data = 1;
  Call call = make(Collective::allreduce, "");
  call.count = 1;
  call.input = call.output = &data;
  try {
    context.channel.run(call, nullptr);
    CHECK(!"the call must fail");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::left);
    CHECK(error.ranks() == std::vector<int>{0});
  }
}

}  // namespace

int main() {
  for (int size = 1; size <= 9; ++size) {
    for (const bool arena : {false, true}) {
      ChannelConfig config;
      config.segment_bytes = 16 << 10;
      std::atomic<int> arrived{0};
      with_channels(size, arena, config, [&](RankContext& context) {
        for (const auto& route : paths(Collective::reduce, arena)) reduce(context, route);
        for (const auto& route : paths(Collective::broadcast, arena)) broadcast(context, route);
        for (const auto& route : paths(Collective::allgather, arena)) allgather(context, route);
        for (const auto& route : paths(Collective::reducescatter, arena)) reducescatter(context, route);
        for (const auto& route : paths(Collective::alltoall, arena)) alltoall(context, route);
        for (const auto& route : paths(Collective::barrier, arena)) barriers(context, route, arrived);
        if (size > 1) {
          mismatches(context);
          departure(context);
        }
      });
    }
    std::printf("other collectives, %d ranks: ok\n", size);
    std::fflush(stdout);
  }
}
