// Tests calls whose buffers are on a device: segments are staged in host memory. The buffers here
// are in host memory too, as a stand-in's are, so that the route can be tested without a device.

#include "device/placeholder.hpp"
#include "host_ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

constexpr std::size_t kLong = 3 * (2 << 20) / sizeof(float) + 7;  // several segments

struct Arrays {
  std::vector<float> input, output;
};

std::vector<std::size_t> uneven(int size, std::size_t count) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(count / 7 + static_cast<std::size_t>(rank % 3));
  return counts;
}

Call call_of(Collective collective, Arrays& arrays, int rank, int size, std::size_t count) {
  Call call;
  call.collective = collective;
  call.count = count;
  call.root = size - 1;
  std::size_t in = count, out = count;
  if (has_blocks(collective)) {
    call.counts = uneven(size, count);
    call.receive_counts.assign(static_cast<std::size_t>(size), call.counts[static_cast<std::size_t>(rank)]);
    const std::size_t mine = call.counts[static_cast<std::size_t>(rank)], all = total(call.counts);
    in = collective == Collective::allgather ? mine : all;
    out = collective == Collective::reducescatter ? mine
          : collective == Collective::allgather   ? all
                                                  : total(call.receive_counts);
  }
  arrays.input.resize(in);
  arrays.output.assign(out, -1.0f);
  for (std::size_t i = 0; i < in; ++i)
    arrays.input[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank)) % 13);
  call.input = arrays.input.data();
  call.output = arrays.output.data();
  return call;
}

void elsewhere(Call& call) {
  call.place = placeholder_location();
  call.on_device = true;
}

void check_all(RankContext& context) {
  for (const Collective collective :
       {Collective::allreduce, Collective::reduce, Collective::broadcast, Collective::allgather,
        Collective::reducescatter, Collective::alltoall, Collective::scan, Collective::exscan}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, kLong}) {
      Arrays here, there;
      context.channel.run(call_of(collective, here, context.rank, context.size, count), nullptr);
      Call call = call_of(collective, there, context.rank, context.size, count);
      elsewhere(call);
      context.channel.run(std::move(call), nullptr);
      const bool result = collective == Collective::reduce ? context.rank == context.size - 1
                                                           : collective != Collective::exscan || context.rank > 0;
      CHECK(!result || here.output == there.output);
      CHECK(here.input == there.input);
    }
  }
}

// Makes calls in place, in fragments, and with inputs that are scaled first because a rank
// contributes a substitute.
void check_fragments(RankContext& context) {
  std::vector<float> first(1000, 1.0f), second(kLong, 2.0f);
  Call call;
  call.count = first.size() + second.size();
  call.fragments = {{first.data(), first.data(), first.size()}, {second.data(), second.data(), second.size()}};
  call.pre.factor = 3;
  call.has_placeholders = true;
  elsewhere(call);
  context.channel.run(std::move(call), nullptr);
  const auto size = static_cast<float>(context.size);
  for (const float value : first) CHECK(value == 3 * size);
  for (const float value : second) CHECK(value == 6 * size);
}

// Passes a host array on one rank: every rank gets an error, and the next call works.
void check_mixed(RankContext& context) {
  if (context.size == 1) return;
  Arrays arrays;
  Call call = call_of(Collective::allreduce, arrays, context.rank, context.size, 100);
  if (context.rank != 0) elsewhere(call);
  std::string message;
  try {
    context.channel.run(std::move(call), nullptr);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::mismatch);
    message = error.what();
  }
  CHECK(message.find("disagree on the kind of memory: CPU on rank 0; GPU on rank") != std::string::npos);
  check_fragments(context);
}

// Makes calls that no rank supports: they are refused before data moves, as for host memory, and
// the next call works.
void check_refused(RankContext& context) {
  Arrays arrays;
  Call call = call_of(Collective::broadcast, arrays, context.rank, context.size, 100);
  call.root = context.size;
  elsewhere(call);
  bool refused = false;
  try {
    context.channel.run(std::move(call), nullptr);
  } catch (const Error& error) {
    refused = error.kind() == ErrorKind::invalid;
  }
  CHECK(refused);
  check_fragments(context);
}

}  // namespace

int main() {
  const auto body = [](RankContext& context, Links&) {
    check_all(context);
    check_fragments(context);
    check_mixed(context);
    check_refused(context);
  };
  for (int size = 1; size <= 9; size += kSanitized ? 2 : 1)
    on_hosts(std::vector<int>(static_cast<std::size_t>(size), 0), {}, body);
  for (std::size_t i = 0; i < kHostLayouts.size(); i += kSanitized ? 3 : 1) on_hosts(kHostLayouts[i], {}, body);
  return 0;
}
