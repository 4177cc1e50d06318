// Where a group's ranks are, and how an array of one block per rank looks to hosts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.hpp"

namespace ringcomm {

class Epochs;

// A lane is one rank of each host: lane k has everybody's k-th, as far as every host has one. Further ranks help inside
// their host only.
class Hosts {
 public:
  Hosts() = default;
  Hosts(const std::vector<int>& host_of, int me);  // by group rank

  int number() const { return static_cast<int>(ranks_.size()); }
  int lanes() const { return lanes_; }
  int mine() const { return mine_; }
  const std::vector<int>& of(int host) const {
    return ranks_[static_cast<std::size_t>(host)];
  }  // its group ranks, in order
  const std::vector<int>& here() const { return of(mine_); }
  std::vector<int> lane(int index) const;  // its group ranks, by host
  int host_of(int group_rank) const;
  int place_here(int group_rank) const;  // as a local rank; -1: on another host

 private:
  std::vector<std::vector<int>> ranks_;  // of each host, hosts in the order of their lowest rank
  int lanes_ = 0, mine_ = 0;
};

// Has everybody on this host arrived? The host's memory knows ranks by their places on the host, errors by their ranks.
bool arrived_here(Epochs& epochs, std::uint32_t epoch, const Hosts& hosts);

// An array of one block per rank (of any sizes), cut for hosts: a host's blocks count as one, in the order of its
// ranks, and segment k holds cut k of every host's, side by side.
class HostBlocks {
 public:
  // `segment_bytes`: of all hosts' cuts together, about.
  HostBlocks(const Hosts& hosts, const std::vector<std::size_t>& counts, std::size_t item, std::size_t segment_bytes);

  std::size_t segments() const { return segments_; }
  std::size_t bytes() const { return blocks_.size() * each_ * item_; }  // of a segment
  std::size_t place(int host) const {
    return static_cast<std::size_t>(host) * each_ * item_;
  }  // in a segment, in bytes
  std::size_t length(int host, std::size_t k) const {  // elements of its cut k
    const std::size_t all = ends_of(host).back();
    return std::min(each_, all - std::min(all, k * each_));
  }
  // Of a part of a host's cut k, what belongs to each of its ranks: visit(local rank there, first element in the array,
  // first element in the cut, elements).
  template <class Visit>
  void visit(int host, std::size_t k, Part part, Visit visit) const {
    const std::vector<std::size_t>& ends = ends_of(host);
    const std::size_t base = k * each_;
    std::size_t at = base + part.first;
    const std::size_t end = at + part.count;
    auto local = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), at) - ends.begin());
    for (; at < end; ++local) {
      const std::size_t last = std::min(end, ends[local]), begun = local == 0 ? 0 : ends[local - 1];
      if (last == at) continue;
      visit(static_cast<int>(local), blocks_[static_cast<std::size_t>(host)].starts[local] + (at - begun), at - base,
            last - at);
      at = last;
    }
  }

 private:
  struct Blocks {
    std::vector<std::size_t> starts;  // by local rank: where its block begins in the array
    std::vector<std::size_t> ends;    // and where it ends among its host's
  };
  const std::vector<std::size_t>& ends_of(int host) const { return blocks_[static_cast<std::size_t>(host)].ends; }

  std::vector<Blocks> blocks_;                  // by host
  std::size_t item_, each_ = 1, segments_ = 1;  // each: elements of a cut
};

}  // namespace ringcomm
