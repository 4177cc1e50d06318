#include "levels/hosts.hpp"

#include <map>

#include "base/error.hpp"
#include "memory/node_staging.hpp"
#include "node/node.hpp"

namespace ringcomm {

Hosts::Hosts(const std::vector<int>& host_of, int me) {
  std::map<int, std::size_t> place;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [found, is_new] = place.try_emplace(host_of[rank], ranks_.size());
    if (is_new) ranks_.emplace_back();
    ranks_[found->second].push_back(static_cast<int>(rank));
    if (static_cast<int>(rank) == me) mine_ = static_cast<int>(found->second);
  }
  for (const auto& ranks : ranks_) {
    const int count = static_cast<int>(ranks.size());
    lanes_ = lanes_ == 0 ? count : std::min(lanes_, count);
  }
}

std::vector<int> Hosts::lane(int index) const {
  std::vector<int> members;
  for (const auto& ranks : ranks_) members.push_back(ranks[static_cast<std::size_t>(index)]);
  return members;
}

int Hosts::host_of(int group_rank) const {
  for (int host = 0; host < number(); ++host) {
    if (std::binary_search(of(host).begin(), of(host).end(), group_rank)) return host;
  }
  return -1;
}

int Hosts::place_here(int group_rank) const {
  const auto found = std::lower_bound(here().begin(), here().end(), group_rank);
  return found != here().end() && *found == group_rank ? static_cast<int>(found - here().begin()) : -1;
}

bool arrived_here(Epochs& epochs, std::uint32_t epoch, const Hosts& hosts) {
  try {
    return epochs.reached(epoch);
  } catch (const Error& error) {
    std::vector<int> ranks;
    for (const int local : error.ranks()) ranks.push_back(hosts.here()[static_cast<std::size_t>(local)]);
    throw Error(error.kind(), error.what(), ranks);
  }
}

// Cuts are of whole cache lines, as slices are, and no longer than the longest host's blocks.
HostBlocks::HostBlocks(const Hosts& hosts, const std::vector<std::size_t>& counts, std::size_t item,
                       std::size_t segment_bytes)
    : item_(item) {
  std::vector<std::size_t> starts;
  std::size_t first = 0, longest = 0;
  for (const std::size_t count : counts) {
    starts.push_back(first);
    first += count;
  }
  for (int host = 0; host < hosts.number(); ++host) {
    Blocks blocks;
    std::size_t end = 0;
    for (const int rank : hosts.of(host)) {
      blocks.starts.push_back(starts[static_cast<std::size_t>(rank)]);
      end += counts[static_cast<std::size_t>(rank)];
      blocks.ends.push_back(end);
    }
    longest = std::max(longest, end);
    blocks_.push_back(std::move(blocks));
  }
  const std::size_t line = kLine / item, lines = (longest + line - 1) / line;
  const std::size_t wanted = segment_bytes / blocks_.size() / kLine;
  each_ = std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(1, lines)) * line;
  segments_ = std::max<std::size_t>(1, (longest + each_ - 1) / each_);
}

}  // namespace ringcomm
