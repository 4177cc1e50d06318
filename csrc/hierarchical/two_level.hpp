// Runs collectives on two levels: ranks of a host use shared memory, hosts use messages. The array
// passes through a pipeline of segments. First, the host's ranks combine their data (reduced,
// gathered) in shared memory. Then lanes (one rank of each host) exchange the data between hosts,
// by a schedule with hosts as its ranks. Each lane sends only its slice, so a host's link carries
// every byte once. Finally, all ranks of the host read the result. Jain et al. call this
// hierarchical; the hierarchical all-reduce of NCCL and Horovod also has one lane per GPU.
#pragma once

#include <memory>
#include <vector>

#include "base/call.hpp"
#include "executor/run_schedule.hpp"
#include "hierarchical/hosts.hpp"
#include "schedule/schedule_cache.hpp"

namespace ringcomm {

class Epochs;

// The parameters of the exchange between hosts.
struct LaneRun {
  Transport& transport;
  TagStream& tags;
  ScheduleCache& schedules;
  const Algorithm& algorithm;
  const Hosts& hosts;      // outlives the task
  int root_host = 0;       // host of the root, if the call or the algorithm has one
  std::vector<int> peers;  // transport ranks of this rank's lane, by host; empty if it is in no lane
  RunOptions options;
  int local_root = -1;            // the call's root as a local rank; -1: on another host
  std::size_t segment_bytes = 0;  // segment size, summed over all lanes

  bool has() const { return !peers.empty(); }
  // Creates the task that runs the lane's schedule on the lane's slices; `where` returns their
  // addresses. `released` and `finished`: as in RunOptions. Returns null on a rank without a lane,
  // but draws tags even then, so that they are equal on all ranks.
  std::unique_ptr<Task> start(std::size_t segments, std::size_t item, Layout::Where where, const std::size_t& released,
                              std::size_t& finished) const;
};

// Creates the task of a call, after Epochs::open_call(). It publishes no descriptor, because the
// ranks have already compared the call. `call` must outlive the task. lane.options has the scaling
// that the schedule between hosts applies (all-reduce and reduce only).
std::unique_ptr<Task> make_two_level(Epochs& epochs, const Call& call, LaneRun lane);

}  // namespace ringcomm
