// Implements HostBlocks: computes the cuts and the parts of each host.
#include "hierarchical/host_blocks.hpp"

namespace ringcomm {
namespace {

// Returns the cuts of the array. They are no longer than the longest block.
Cuts cuts_of(const Hosts& hosts, const Call& call, std::size_t segment_bytes) {
  const std::size_t item = size_of(call.dtype);
  if (!has_blocks(call.collective)) return {call.count, cut_for(segment_bytes, item)};
  std::vector<std::size_t> counts;
  for (int host = 0; host < hosts.number(); ++host) {
    counts.push_back(0);
    for (const int rank : hosts.of(host)) counts.back() += call.counts[static_cast<std::size_t>(rank)];
  }
  const std::size_t line = kLine / item, longest = *std::max_element(counts.begin(), counts.end());
  const std::size_t each = cut_for(segment_bytes, item, counts.size());
  return {std::move(counts), std::min(each, std::max(line, round_up(longest, line)))};
}

}  // namespace

HostBlocks::HostBlocks(const Hosts& hosts, const Call& call, std::size_t segment_bytes)
    : hosts_(hosts), item_(size_of(call.dtype)), stretches_(1), starts_{{0}},
      cuts_(cuts_of(hosts, call, segment_bytes)) {
  if (!has_blocks(call.collective)) return;
  stretches_.assign(cuts_.blocks(), {});
  starts_.assign(cuts_.blocks(), {});
  const Cuts ranks(call.counts, 1);
  for (std::size_t host = 0; host < cuts_.blocks(); ++host) {
    for (const int rank : hosts.of(static_cast<int>(host))) {
      starts_[host].push_back(ranks.start(static_cast<std::size_t>(rank)));
      stretches_[host].add(call.counts[static_cast<std::size_t>(rank)]);
    }
  }
}

}  // namespace ringcomm
