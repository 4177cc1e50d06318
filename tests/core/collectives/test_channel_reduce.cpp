// Tests every all-reduce algorithm x dtype x op x ranks x count, by messages and in shared memory.
// Results are exact on integer-valued data, close on random data, IEEE on special values, and have
// equal bits on every rank.
#include <cmath>
#include <limits>
#include <random>

#include "base/trace.hpp"
#include "kernels/kernels.hpp"
#include "ranks.hpp"
#include "values.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

void exact(RankContext& context, bool arena) {
  const auto size = static_cast<std::size_t>(context.size);
  for (const std::string& route : paths(Collective::allreduce, arena)) {
    for (std::size_t d = 0; d < kNumbers; ++d) {
      if (kSanitized && d % 3 != size % 3) continue;
      const auto dtype = static_cast<DType>(d);
      for (const Op op : {Op::average, Op::sum, Op::min, Op::max, Op::product}) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, size - 1, size, size + 1, std::size_t{1009}}) {
          std::vector<double> mine(count);
          for (std::size_t i = 0; i < count; ++i) mine[i] = given(dtype, op, context.rank, i);
          std::vector<std::byte> input, output(count * item(dtype), std::byte{0x5a});
          store(dtype, input, mine);
          const auto before = input;
          const bool in_place = (count + d) % 2 == 0;
          Call call;
          call.dtype = dtype;
          call.op = op;
          call.algorithm = route;
          call.count = count;
          call.input = input.data();
          call.output = in_place ? input.data() : output.data();
          context.channel.run(call, nullptr);
          const auto& result = in_place ? input : output;
          if (!in_place) CHECK(input == before);
          CHECK(context.same_everywhere(result.data(), result.size()));
          const auto values = load(dtype, result);
          for (std::size_t i = 0; i < count; ++i) {
            if (right(dtype, op, values[i], expected(dtype, op, context.size, i))) continue;
            std::fprintf(stderr, "allreduce %s %s %s p=%d count=%zu i=%zu: %g, not %g\n", route.c_str(),
                         info(dtype).name.data(), name_of(op).data(), context.size, count, i, values[i],
                         expected(dtype, op, context.size, i));
            std::abort();
          }
        }
      }
    }
  }
}

// Reduces random data in many segments: the error is within the bound of p roundings, and bits are
// equal.
void large(RankContext& context, bool arena) {
  constexpr std::size_t kCount = kSanitized ? 20'000 : 100'000;
  for (const std::string& route : paths(Collective::allreduce, arena)) {
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      std::vector<double> sum(kCount), magnitude(kCount), mine(kCount);
      std::vector<std::byte> buffer, rounded;
      for (int rank = 0; rank < context.size; ++rank) {
        std::mt19937 random(static_cast<unsigned>(rank * 31 + static_cast<int>(dtype)));
        std::uniform_real_distribution<double> draw(-1, 1);
        for (double& value : mine) value = draw(random);
        store(dtype, rounded, mine);
        const auto held = load(dtype, rounded);
        for (std::size_t i = 0; i < kCount; ++i) {
          sum[i] += held[i];
          magnitude[i] += std::abs(held[i]);
        }
        if (rank == context.rank) buffer = rounded;
      }
      Call call;
      call.dtype = dtype;
      call.algorithm = route;
      call.count = kCount;
      call.input = call.output = buffer.data();
      call.pre.factor = 0.5;
      call.post.factor = 2.0;
      context.channel.run(call, nullptr);
      CHECK(context.same_everywhere(buffer.data(), buffer.size()));
      const auto values = load(dtype, buffer);
      for (std::size_t i = 0; i < kCount; ++i)
        CHECK(std::abs(values[i] - sum[i]) <= context.size * epsilon(dtype) * magnitude[i]);
    }
  }
}

void specials(RankContext& context, bool arena) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const int last = context.size - 1;
  const auto at = [&](int rank, double there, double elsewhere) { return context.rank == rank ? there : elsewhere; };
  for (const std::string& route : paths(Collective::allreduce, arena)) {
    for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
      for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
        // inputs: a NaN on the last rank; infinities of both signs; zeros of both signs; one
        // infinity
        std::vector<std::byte> buffer;
        store(dtype, buffer,
              {at(last, nan, 1.0), at(0, inf, at(last, -inf, 1.0)), at(0, -0.0, 0.0), at(last, -0.0, 0.0),
               at(0, inf, 1.0), -0.0});
        Call call;
        call.dtype = dtype;
        call.op = op;
        call.algorithm = route;
        call.count = 6;
        call.input = call.output = buffer.data();
        context.channel.run(call, nullptr);
        CHECK(context.same_everywhere(buffer.data(), buffer.size()));
        const auto v = load(dtype, buffer);
        CHECK(std::isnan(v[0]));
        CHECK(std::signbit(v[5]) == (op != Op::product || context.size % 2 == 1));
        if (context.size == 1) continue;
        if (op == Op::sum) CHECK(std::isnan(v[1]) && v[2] == 0 && !std::signbit(v[2]) && v[4] == inf);
        if (op == Op::min) CHECK(v[1] == -inf && std::signbit(v[2]) && std::signbit(v[3]) && v[4] == 1);
        if (op == Op::max) CHECK(v[1] == inf && !std::signbit(v[2]) && !std::signbit(v[3]) && v[4] == inf);
        if (op == Op::product) CHECK(v[1] == -inf && v[4] == inf);
      }
    }
  }
}

// Checks in the trace which route ran, so that no test silently runs another one.
void traced(RankContext& context, bool arena) {
  for (const std::string& route : paths(Collective::allreduce, arena)) {
    context.barrier.arrive_and_wait();
    if (context.rank == 0) {
      trace().drain();
      trace().enable(true);
    }
    context.barrier.arrive_and_wait();
    float value = 1;
    Call call;
    call.algorithm = route;
    call.count = 1;
    call.input = call.output = &value;
    call.name = "traced";
    context.channel.run(call, nullptr);
    CHECK(value == static_cast<float>(context.size));
    context.barrier.arrive_and_wait();
    if (context.rank == 0) {
      trace().enable(false);
      int runs = 0;
      for (const TraceEvent& event : trace().drain()) {
        if (std::string(event.category) != "run") continue;
        CHECK(std::string(event.name) == "traced");
        const std::string want = context.size == 1 ? "local" : route.empty() && arena ? "shared" : route;
        if (!want.empty()) CHECK(std::string(event.detail) == want);
        ++runs;
      }
      CHECK(runs == context.size);
    }
  }
}

}  // namespace

int main() {
  for (int size = 1; size <= 9; ++size) {
    if (kSanitized && size != 2 && size != 3 && size != 5) continue;  // sanitizers make it 20 times slower
    for (const bool arena : {false, true}) {
      ChannelConfig config;
      config.segment_bytes = 64 << 10;
      config.node_segment_bytes = 32 << 10;
      with_channels(size, arena, config, [&](RankContext& context) {
        exact(context, arena);
        specials(context, arena);
        traced(context, arena);
        if (size <= 5 || size == 8) large(context, arena);
      });
    }
    std::printf("allreduce, %d ranks: ok\n", size);
    std::fflush(stdout);
  }
}
