// Where a group's ranks are.
#pragma once

#include <cstdint>
#include <vector>

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
  // Its group ranks, in order.
  const std::vector<int>& of(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  const std::vector<int>& here() const { return of(mine_); }
  std::vector<int> lane(int index) const;  // its group ranks, by host
  int host_of(int group_rank) const;
  int local_rank(int group_rank) const;  // -1: on another host

 private:
  std::vector<std::vector<int>> ranks_;  // of each host, hosts in the order of their lowest rank
  int lanes_ = 0, mine_ = 0;
};

// Has everybody on this host arrived? The host's memory knows ranks by their local rank; errors name group ranks.
bool arrived_here(Epochs& epochs, std::uint32_t epoch, const Hosts& hosts);

}  // namespace ringcomm
