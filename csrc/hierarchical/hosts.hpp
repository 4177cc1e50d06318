// Maps the ranks of a group to hosts and lanes. All collectives on two levels use it.
#pragma once

#include <cstdint>
#include <vector>

namespace ringcomm {

// The hosts of a group. A lane consists of one rank of each host: lane k, of the k-th rank of every
// host. The host with the fewest ranks determines the number of lanes; the further ranks of other
// hosts take part only within their host.
class Hosts {
 public:
  Hosts() = default;
  Hosts(const std::vector<int>& host_of, int me);  // `host_of`: by group rank

  int number() const { return static_cast<int>(ranks_.size()); }
  int lanes() const { return lanes_; }
  int mine() const { return mine_; }
  // The group ranks of a host, in order.
  const std::vector<int>& of(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  const std::vector<int>& here() const { return of(mine_); }
  std::vector<int> lane(int index) const;  // group ranks of a lane, by host
  int host_of(int group_rank) const;
  int local_rank(int group_rank) const;  // -1: on another host

 private:
  std::vector<std::vector<int>> ranks_;  // per host; hosts are in the order of their lowest rank
  int lanes_ = 0, mine_ = 0;
};

}  // namespace ringcomm
