// Tests reduce-scatter and all-to-all in shared memory with results that overlap their input in any
// way. Results are correct, and the input is copied only if stores to the result could overwrite
// unread input.
#include <numeric>

#include "host_collectives/kept_input.hpp"
#include "ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using Values = std::vector<std::int32_t>;

std::int32_t given(int rank, std::size_t i) {
  return static_cast<std::int32_t>(1000 * rank + static_cast<int>(i % 997));
}

// Returns blocks of unequal lengths; the first ones are longer.
std::vector<std::size_t> blocks(int size, std::size_t count) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < size; ++rank) {
    counts.push_back(split(count, static_cast<std::size_t>(size), static_cast<std::size_t>(rank)).count);
  }
  return counts;
}

std::size_t start_of(const std::vector<std::size_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

// One range of memory: the input in its middle, and room for a result before and after it.
struct Memory {
  Memory(int rank, std::size_t count) : values(4 * count, -1), count_(count) {
    for (std::size_t i = 0; i < count; ++i) input()[i] = given(rank, i);
  }
  std::int32_t* input() { return values.data() + 3 * count_ / 2; }
  Values values;

 private:
  std::size_t count_;
};

// Returns the possible starts of a result of `own` elements, relative to the input.
std::vector<std::ptrdiff_t> places(std::size_t count, std::size_t own, std::size_t block) {
  const auto n = static_cast<std::ptrdiff_t>(count), m = static_cast<std::ptrdiff_t>(own),
             b = static_cast<std::ptrdiff_t>(block);
  return {-n, -m, -m + 1, -1, 0, 1, b - 1, b, b + 1, n - m, n - 1, n, n + 1};
}

void reduce_scatter_anywhere(RankContext& context, std::size_t count) {
  const auto counts = blocks(context.size, count);
  const std::size_t own = counts[static_cast<std::size_t>(context.rank)], first = start_of(counts, context.rank);
  // Ranks' own starts differ, but their number does not, so all ranks make equally many calls.
  for (std::size_t k = 0; k < places(count, own, first).size(); ++k) {
    Memory memory(context.rank, count);
    std::int32_t* const result = memory.input() + places(count, own, first)[k];
    Call call;
    call.collective = Collective::reducescatter;
    call.dtype = DType::int32;
    call.counts = counts;
    call.input = memory.input();
    call.output = result;
    context.channel.run(call, nullptr);
    for (std::size_t i = 0; i < own; ++i) {
      std::int32_t sum = 0;
      for (int rank = 0; rank < context.size; ++rank) sum += given(rank, first + i);
      CHECK(result[i] == sum);
    }
  }
}

void all_to_all_anywhere(RankContext& context, std::size_t count) {
  const std::size_t each = count / static_cast<std::size_t>(context.size);
  const auto own_first = static_cast<std::size_t>(context.rank) * each;
  for (const std::ptrdiff_t place : places(count, each * static_cast<std::size_t>(context.size), own_first)) {
    Memory memory(context.rank, count);
    Call call;
    call.collective = Collective::alltoall;
    call.dtype = DType::int32;
    call.counts.assign(static_cast<std::size_t>(context.size), each);
    call.receive_counts = call.counts;
    call.input = memory.input();
    std::int32_t* const result = memory.input() + place;
    call.output = result;
    context.channel.run(call, nullptr);
    for (int rank = 0; rank < context.size; ++rank) {
      for (std::size_t i = 0; i < each; ++i)
        CHECK(result[static_cast<std::size_t>(rank) * each + i] == given(rank, own_first + i));
    }
  }
}

Call reduce_scatter_at(std::ptrdiff_t place, std::vector<std::size_t> counts) {
  static std::byte memory[64];
  Call call;
  call.collective = Collective::reducescatter;
  call.dtype = DType::uint8;
  call.input = memory + 24;
  call.output = memory + 24 + place;
  call.counts = std::move(counts);
  return call;
}

// Checks 16 bytes of input in blocks of 6, 5 and 5.
void copies_exactly_where_needed() {
  const auto needs = [](std::ptrdiff_t place, int rank) {
    return overwrites_input(reduce_scatter_at(place, {6, 5, 5}), rank);
  };
  CHECK(!needs(-6, 0) && needs(-5, 0) && !needs(0, 0) && needs(1, 0) && needs(15, 0) && !needs(16, 0));
  CHECK(!needs(-5, 1) && needs(-4, 1) && needs(0, 1) && needs(5, 1) && !needs(6, 1) && needs(7, 1) && !needs(16, 1));
  CHECK(!needs(-16, 2) && needs(6, 2) && !needs(11, 2) && needs(12, 2) && !needs(17, 2));
  CHECK(!overwrites_input(reduce_scatter_at(3, {8, 0, 8}), 1));  // this rank's block is empty
}

}  // namespace

int main() {
  copies_exactly_where_needed();
  for (int size = 1; size <= 9; ++size) {
    const std::size_t counts[] = {static_cast<std::size_t>(size), 97, kSanitized ? 3000u : 40'000u};
    for (const std::size_t count : counts) {
      ChannelConfig config;
      config.node_segment_bytes = 4096;
      with_channels(size, size > 1, config, [&](RankContext& context) {
        reduce_scatter_anywhere(context, count);
        if (size > 1) all_to_all_anywhere(context, count);
      });
    }
  }
}
