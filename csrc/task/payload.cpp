#include "task/payload.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "task/staged_kinds.hpp"

namespace ringcomm {
namespace {

std::size_t start_of(const std::vector<std::size_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

}  // namespace

bool rides(const NodeCall& call, int ranks, std::size_t most) {
  std::size_t count = call.count;
  switch (call.collective) {
    case Collective::barrier: count = 0; break;
    case Collective::alltoall: return false;  // a rank knows only its own row
    case Collective::allgather: count = *std::max_element(call.counts.begin(), call.counts.end()); break;
    case Collective::reducescatter: count = total(call.counts); break;
    default: break;
  }
  return count <= most / size_of(call.dtype) && static_cast<std::size_t>(ranks) <= kMostPayloads;
}

std::size_t put_payload(const NodeCall& call, int me, std::byte* to) {
  std::size_t count = call.collective == Collective::barrier ? 0 : call.count;
  if (call.collective == Collective::broadcast && me != call.root) count = 0;
  if (call.collective == Collective::allgather) count = call.counts[static_cast<std::size_t>(me)];
  if (call.collective == Collective::reducescatter) count = total(call.counts);
  if (count == 0 || !call.gives(me)) return 0;
  std::memcpy(to, call.input, count * size_of(call.dtype));
  return count * size_of(call.dtype);
}

void take_payloads(const NodeCall& call, int me, std::span<const std::byte* const> payloads) {
  const std::size_t item = size_of(call.dtype);
  const int ranks = static_cast<int>(payloads.size());
  const auto reduce = [&](std::size_t first, std::size_t count) {
    std::array<const void*, kMostPayloads> sources;
    std::size_t givers = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (call.gives(rank)) sources[givers++] = payloads[static_cast<std::size_t>(rank)] + first * item;
    }
    kernels::reduce_many(call.dtype, call.op, {&call.output, 1}, std::span(sources.data(), givers), count, call.pre, call.post);
  };
  const auto copy = [&](int from, std::size_t to, std::size_t count) {
    if (count > 0) std::memcpy(at(call.output, to * item), payloads[static_cast<std::size_t>(from)], count * item);
  };
  if (!call.gives(me)) return;
  switch (call.collective) {
    case Collective::allreduce: reduce(0, call.count); break;
    case Collective::reduce:
      if (me == call.root) reduce(0, call.count);
      break;
    case Collective::reducescatter: reduce(start_of(call.counts, me), call.counts[static_cast<std::size_t>(me)]); break;
    case Collective::broadcast: copy(call.root, 0, call.count); break;
    case Collective::allgather:
      for (int rank = 0; rank < ranks; ++rank) copy(rank, start_of(call.counts, rank), call.counts[static_cast<std::size_t>(rank)]);
      break;
    default: break;
  }
}

}  // namespace ringcomm
