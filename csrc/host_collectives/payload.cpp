// Copies, reduces and merges payloads of small calls.
#include "host_collectives/payload.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/kernels.hpp"
#include "shm/mailbox.hpp"

namespace ringcomm {

bool fits_inline(const Call& call, int ranks, std::size_t most) {
  if (call.collective == Collective::alltoall && !call.even) return false;  // a rank knows only its own row
  const bool parts = call.collective == Collective::allgather;
  const std::size_t count = parts ? *std::max_element(call.counts.begin(), call.counts.end()) : call.elements();
  return count <= most / size_of(call.dtype) && static_cast<std::size_t>(ranks) <= kMostPayloads;
}

bool fits_header(const Call& call, int ranks) {
  return (computes(call.collective) || call.collective == Collective::broadcast) &&
         fits_inline(call, ranks, kHeaderData);
}

std::size_t payload_bytes(const Call& call, int rank) {
  if (call.collective == Collective::broadcast && rank != call.root) return 0;
  const bool part = call.collective == Collective::allgather;
  return (part ? call.counts[static_cast<std::size_t>(rank)] : call.elements()) * size_of(call.dtype);
}

std::size_t publish_payload(const Call& call, int me, std::byte* to) {
  const std::size_t nbytes = payload_bytes(call, me);
  kernels::copy(to, call.input, nbytes);
  return nbytes;
}

namespace {

// Computes this rank's part of the reduction of complete payloads.
std::size_t collect_reduction(const Call& call, int me, std::span<const void*> sources, const kernels::Scale& pre) {
  Part part{0, call.count};
  if (call.collective == Collective::reducescatter)
    part = {start_of(call.counts, me), call.counts[static_cast<std::size_t>(me)]};
  if (call.collective == Collective::reduce && me != call.root) return 0;
  if (is_scan(call.collective))
    sources = sources.first(static_cast<std::size_t>(call.collective == Collective::scan ? me + 1 : me));
  if (sources.empty()) return 0;
  for (const void*& source : sources) source = at(source, part.first * size_of(call.dtype));
  kernels::reduce_many(call.dtype, call.op, {&call.output, 1}, sources, part.count, pre, call.post);
  const std::size_t others = sources.size() - (static_cast<std::size_t>(me) < sources.size() ? 1 : 0);
  return others * part.count * size_of(call.dtype);
}

}  // namespace

std::size_t collect_payloads(const Call& call, int me, std::span<const std::byte* const> payloads) {
  const int ranks = static_cast<int>(payloads.size());
  if (computes(call.collective)) {
    std::array<const void*, kMostPayloads> sources;
    std::copy(payloads.begin(), payloads.end(), sources.begin());
    return collect_reduction(call, me, std::span(sources.data(), payloads.size()), call.pre);
  }
  std::size_t read = 0;
  const auto copy = [&](int from, std::size_t first, std::size_t count, std::byte* to) {
    const std::size_t item = size_of(call.dtype);
    const std::byte* const source = payloads[static_cast<std::size_t>(from)] + first * item;
    if (source != to) kernels::copy(to, source, count * item);  // equal: this rank's block, in place
    if (from != me) read += count * item;
  };
  if (call.collective == Collective::broadcast) copy(call.root, 0, call.count, at(call.output, 0));
  const bool exchange = call.collective == Collective::alltoall;
  for (int rank = 0; has_blocks(call.collective) && rank < ranks; ++rank) {
    const std::size_t count = call.counts[static_cast<std::size_t>(rank)];
    copy(rank, exchange ? start_of(call.counts, me) : 0, count, call.part_from(rank));
  }
  return read;
}

std::size_t merge_payloads(const Call& call, std::span<const std::byte* const> payloads, const kernels::Scale& pre,
                           std::byte* to) {
  std::array<const void*, kMostPayloads> sources;
  std::copy(payloads.begin(), payloads.end(), sources.begin());
  const std::size_t nbytes = payload_bytes(call, 0);  // equal for all ranks
  void* const target = to;
  kernels::reduce_many(call.dtype, call.op, {&target, 1}, std::span(sources.data(), payloads.size()),
                       nbytes / size_of(call.dtype), pre, {});
  return nbytes;
}

void collect_merged(const Call& call, int me, std::span<const std::byte* const> merged) {
  std::array<const void*, kMostPayloads> sources;
  std::copy(merged.begin(), merged.end(), sources.begin());
  collect_reduction(call, me, std::span(sources.data(), merged.size()), {});
}

}  // namespace ringcomm
