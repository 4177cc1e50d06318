// How a channel is made, and what its calls share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/caller_wait.hpp"
#include "base/error.hpp"
#include "base/tuned.hpp"
#include "collectives/call_account.hpp"
#include "collectives/choose.hpp"
#include "collectives/custom_algorithms.hpp"
#include "collectives/departures.hpp"
#include "executor/run_schedule.hpp"
#include "hierarchical/hosts.hpp"
#include "schedule/schedule_cache.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

// What a channel is made with; the same on all ranks.
struct ChannelConfig {
  std::size_t segment_bytes = 0;  // of a schedule's instance; 0: chosen
  std::size_t node_segment_bytes = kMemorySegment;
  std::size_t window = 0;                       // instances in flight; 0: chosen
  std::int64_t spin_ns = 0;                     // a waiting caller keeps its core for so long: where every rank has one
  bool check = true;                            // compare descriptors before data moves
  int goodbye_tag = -1;                         // where a leaving peer says so; -1: somebody else listens (the engine)
  Network network;                              // between ranks, by messages
  std::vector<int> hosts;                       // by the transport's rank; empty: each has one of its own
  std::string algorithm;                        // of all-reduces that name none; "": chosen
  std::string device_route = "auto";            // for GPU arrays: or the name of a DeviceRoute, or "staging"
  std::vector<Rule> rules;                      // of a tuning file
  double stall_warn_seconds = 60;               // 0: never
  std::shared_ptr<const CustomAlgorithms> own;  // may be null
  std::shared_ptr<Account> account;             // for calls of one channel at a time; null: one of its own
  std::function<bool()> help;  // gives others of this process a turn while a caller waits in run(); may be null
};

struct CallContext {
  CallContext(std::shared_ptr<Transport> transport, std::vector<int> peers, int me, TagStream tags,
              std::shared_ptr<Node> node, int slot, ChannelConfig config);

  int size() const { return static_cast<int>(peers.size()); }
  bool on_one_host() const { return epochs && node->size() == size(); }
  std::vector<int> host_of() const;         // by group rank; empty: each has one of its own
  void publish_state(std::uint32_t state);  // as Mailbox has it
  void end_after(const Error& error);       // as Channel::end_after
  StallReport::Text stalled_in(std::string_view call, std::string_view kind) const;  // `kind`: "an ordered call"
  // What has moved since it was asked last was so many calls' that ran as `choice`; or one's that failed.
  void book(Collective collective, const Choice& choice, std::uint64_t calls);
  void book_failure() noexcept { account.book_failure(memory_moved()); }

  const ChannelConfig config;
  CallAccount account;
  const std::shared_ptr<Transport> transport;  // which counts
  const std::vector<int> peers;                // the transport's rank of each group rank
  const int me;
  TagStream tags;
  ScheduleCache schedules;
  const std::shared_ptr<Node> node;
  const std::unique_ptr<Epochs> epochs;  // of the group's ranks on this host; null if it has one rank, or no arena
  const Hosts hosts;                     // none where all are on one host, or some host has no memory in common
  Departures departures;
  int crowded = 0;  // calls from now that wait as beside a busy process: in one of the last ones, it has had this core
  std::optional<Error> broken;  // why nothing more runs here

 private:
  std::uint64_t memory_moved() { return epochs ? std::exchange(epochs->copied, 0) : 0; }
};

}  // namespace ringcomm
