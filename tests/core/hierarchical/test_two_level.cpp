// Tests two-level all-reduce of private arrays.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "base/trace.hpp"
#include "host_ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

template <class T>
static std::vector<T> values(int rank, std::size_t count, unsigned seed) {
  std::mt19937 random(seed * 31 + static_cast<unsigned>(rank));
  std::vector<T> out(count);
  for (T& v : out) v = static_cast<T>(random() % 50);
  return out;
}

template <class T>
static void agrees(int rank, int size, Channel& channel, DType dtype, const std::string& algorithm, std::size_t count,
                   unsigned seed) {
  std::vector<T> input = values<T>(rank, count, seed), output(count, T{9});
  Call call;
  call.dtype = dtype;
  call.op = seed % 3 == 0 ? Op::average : seed % 3 == 1 ? Op::sum : Op::max;
  call.count = count;
  call.algorithm = algorithm;
  const bool in_place = seed % 2 == 0;
  call.input = input.data();
  call.output = in_place ? input.data() : output.data();
  const Op op = call.op;
  channel.run(std::move(call), nullptr);
  const std::vector<T>& result = in_place ? input : output;
  // Compares with plain sums over all ranks' values.
  std::vector<double> sums(count, op == Op::max ? -1.0 : 0.0);
  for (int r = 0; r < size; ++r) {
    const std::vector<T> theirs = values<T>(r, count, seed);
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] =
          op == Op::max ? std::max(sums[i], static_cast<double>(theirs[i])) : sums[i] + static_cast<double>(theirs[i]);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double exact = op == Op::average ? sums[i] / size : sums[i];
    const double error = std::abs(static_cast<double>(result[i]) - exact);
    CHECK(dtype == DType::int32 ? static_cast<double>(result[i]) == std::trunc(exact)
                                : error <= 1e-5 * (1 + std::abs(exact)));
  }
}

static void layout(const std::vector<int>& host_of) {
  const int size = static_cast<int>(host_of.size());
  ChannelConfig config;
  config.segment_bytes = 4 << 10;
  on_hosts(host_of, config, [&](RankContext& context, Links&) {
    const int rank = context.rank;
    Channel& channel = context.channel;
    unsigned seed = 1;
    for (const char* algorithm :
         {"", "two_level:ring", "two_level:butterfly_halving", "two_level:tree", "ring", "two_level:round_robin"}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{1000},
                                      std::size_t{30'011}, std::size_t{200'003}}) {
        agrees<float>(rank, size, channel, DType::float32, algorithm, count, ++seed);
        agrees<std::int32_t>(rank, size, channel, DType::int32, algorithm, count, ++seed);
        agrees<double>(rank, size, channel, DType::float64, algorithm, count, ++seed);
      }
    }
  });
  std::printf("%d ranks: ok\n", size);
  std::fflush(stdout);
}

// Checks that the automatic choice uses the second level if some host has several ranks.
static void chosen(const std::vector<int>& host_of) {
  trace().drain();
  trace().enable(true);
  ChannelConfig config;
  config.network.between.beta = 4e-8;  // 200 Mbit/s
  on_hosts(host_of, config, [](RankContext& context, Links&) {
    Call call;
    call.dtype = DType::float32;
    call.count = 1 << 20;
    CHECK(context.channel.choose(call).name.starts_with("two_level:"));
    std::vector<float> data(call.count, 1);
    call.input = call.output = data.data();
    context.channel.run(call, nullptr);
    CHECK(data[0] == static_cast<float>(context.size) && data.back() == data[0]);
  });
  trace().enable(false);
  std::size_t traced = 0;
  for (const TraceEvent& event : trace().drain())
    traced += std::string_view(event.category) == "run" && std::string_view(event.detail).starts_with("two_level:");
  CHECK(traced == host_of.size());
}

int main() {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 1, 1},
                                                                     {0, 1, 0, 1},
                                                                     {0, 0, 1, 1, 2, 2},
                                                                     {0, 0, 0, 1, 1},
                                                                     {0, 1, 1, 1},
                                                                     {2, 2, 2, 0, 0, 0, 0, 1, 1},
                                                                     {0, 0, 1}}) {
    layout(hosts);
  }
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 1, 1}, {0, 0, 1, 2, 2, 2}, {0, 1, 2, 2}}) chosen(hosts);
}
