// Collectives on two levels: the ranks of a host through their arenas, hosts by messages. A pipeline of segments. What
// a host's ranks have is brought together (reduced, gathered) in their memory. From there lanes carry it to the other
// hosts, by a schedule whose ranks are the hosts: each lane its slice, so that a host's link carries every byte once.
// Then all ranks of the host take the result. (Jain et al. call it hierarchical; NCCL's and Horovod's hierarchical
// all-reduce have one lane per GPU likewise.)
#pragma once

#include <memory>
#include <vector>

#include "base/call.hpp"
#include "executor/run_schedule.hpp"
#include "hierarchical/hosts.hpp"
#include "schedule/schedule_cache.hpp"

namespace ringcomm {

// What happens between hosts.
struct LaneRun {
  Transport& transport;
  TagStream& tags;
  ScheduleCache& schedules;
  const Algorithm& algorithm;
  const Hosts& hosts;      // outlives the task
  int root_host = 0;       // where the call or the algorithm has a root
  std::vector<int> peers;  // the transport's ranks of this rank's lane, by host; empty if it has none
  RunOptions options;
  int local_root = -1;            // the call's root as a local rank; -1: on another host
  std::size_t segment_bytes = 0;  // of all lanes together

  bool has() const { return !peers.empty(); }
  // Runs the lane's schedule over its slices, which lie where `where` says; opens segments as `released` grows. Null
  // without a lane; then, too, tags are drawn, so that they are the same on all ranks.
  std::unique_ptr<Task> start(std::size_t segments, std::size_t item, Layout::Where where, const std::size_t& released,
                              std::size_t& finished) const;
};

// For a call that follows Epochs::open_call(), of which nothing is published: all ranks know that they agree. `call`
// outlives it. What schedules between hosts scale (all-reduce, reduce), lane.options say.
std::unique_ptr<Task> make_two_level(Epochs& epochs, const Call& call, LaneRun lane);

}  // namespace ringcomm
