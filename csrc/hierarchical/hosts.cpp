// Implements Hosts: groups ranks by host, and finds lanes and local ranks.
#include "hierarchical/hosts.hpp"

#include <algorithm>
#include <map>

namespace ringcomm {

Hosts::Hosts(const std::vector<int>& host_of, int me) {
  std::map<int, std::size_t> index;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [found, is_new] = index.try_emplace(host_of[rank], ranks_.size());
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

int Hosts::local_rank(int group_rank) const {
  const auto found = std::lower_bound(here().begin(), here().end(), group_rank);
  return found != here().end() && *found == group_rank ? static_cast<int>(found - here().begin()) : -1;
}

}  // namespace ringcomm
