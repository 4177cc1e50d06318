// Collectives on two levels: ranks of a host use shared memory, hosts use messages. The array
// passes through a pipeline of segments. First, the host's ranks combine their data (reduced,
// gathered) in shared memory. Then lanes exchange it with the other hosts, by a schedule with
// hosts as its ranks. Each lane sends only its slice, so a host's link carries every byte once.
// Finally, all ranks of the host read the result. Jain et al. call this hierarchical; the
// hierarchical all-reduce of NCCL and Horovod also has one lane per GPU.
#pragma once

#include <memory>
#include <vector>

#include "base/call.hpp"
#include "executor/run_schedule.hpp"
#include "hierarchical/hosts.hpp"
#include "schedule/schedule_cache.hpp"

namespace ringcomm {

// The parameters of the exchange between hosts.
struct LaneRun {
  Transport& transport;
  TagStream& tags;
  ScheduleCache& schedules;
  const Algorithm& algorithm;
  const Hosts& hosts;      // outlives the task
  int root_host = 0;       // host of the root, if the call or the algorithm has one
  std::vector<int> peers;  // transport ranks of this rank's lane, by host; empty if it has none
  RunOptions options;
  int local_root = -1;            // the call's root as a local rank; -1: on another host
  std::size_t segment_bytes = 0;  // segment size, summed over all lanes

  bool has() const { return !peers.empty(); }
  // Runs the lane's schedule over its slices, at the addresses that `where` returns. Starts
  // segments as `released` grows. Returns null without a lane; tags are drawn even then, so that
  // they are equal on all ranks.
  std::unique_ptr<Task> start(std::size_t segments, std::size_t item, Layout::Where where, const std::size_t& released,
                              std::size_t& finished) const;
};

// Makes the task of a call that follows Epochs::open_call(), without a published descriptor: all
// ranks know that they agree. `call` outlives it. lane.options has the scaling that schedules
// between hosts apply (all-reduce, reduce).
std::unique_ptr<Task> make_two_level(Epochs& epochs, const Call& call, LaneRun lane);

}  // namespace ringcomm
