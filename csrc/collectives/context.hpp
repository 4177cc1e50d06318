// Defines the configuration of a channel, and the state that its calls share.
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

// The configuration of a channel; equal on all ranks.
struct ChannelConfig {
  std::size_t segment_bytes = 0;  // segment size of a schedule's instance; 0: chosen
  std::size_t node_segment_bytes = kMemorySegment;
  std::size_t window = 0;                    // instances in flight; 0: chosen
  std::int64_t spin_ns = 0;                  // time that a waiting caller spins, if every rank has a core
  bool check = true;                         // compare descriptors before data moves
  int goodbye_tag = -1;                      // tag of goodbye messages; -1: the engine handles goodbyes
  Network network;                           // between ranks, for messages
  std::vector<int> hosts;                    // by the transport's rank; empty: each rank is on a different host
  std::string algorithm;                     // for all-reduces that name none; "": chosen
  std::string device_route = "auto";         // for GPU arrays: "auto", the name of a DeviceRoute, or "staging"
  std::vector<Rule> rules;                   // from a tuning file
  std::shared_ptr<const Topology> topology;  // links between hosts; null: prices without contention
  double stall_warn_seconds = 60;            // 0: never
  std::shared_ptr<const CustomAlgorithms> custom_algorithms;  // may be null
  std::shared_ptr<Account> account;                           // used by one channel at a time; null: a private one
  std::function<bool()> help;  // advances other work of this process while a caller waits in run(); may be null
};

struct CallContext {
  CallContext(std::shared_ptr<Transport> transport, std::vector<int> peers, int me, TagStream tags,
              std::shared_ptr<Node> node, int slot, ChannelConfig config);

  int size() const { return static_cast<int>(peers.size()); }
  bool on_one_host() const { return epochs && node->size() == size(); }
  std::vector<int> host_of() const;         // by group rank; empty: each rank is on a different host
  void publish_state(std::uint32_t state);  // sets Mailbox::state
  void end_after(const Error& error);       // see Channel::end_after
  // Returns the text of a stall report for the call named `call`. `kind` precedes the name:
  // "allreduce".
  StallReport::Text stalled_in(std::string_view call, std::string_view kind) const;
  // Books all traffic since the previous book() to `calls` calls that ran with `choice`;
  // book_failure() to a failed call.
  void book(Collective collective, const Choice& choice, std::uint64_t calls);
  void book_failure() noexcept { account.book_failure(memory_moved()); }

  const ChannelConfig config;
  CallAccount account;
  const std::shared_ptr<Transport> transport;  // counts messages
  const std::vector<int> peers;                // the transport's rank of each group rank
  const int me;
  TagStream tags;
  ScheduleCache schedules;
  const std::shared_ptr<Node> node;
  const std::unique_ptr<Epochs> epochs;  // for the group's ranks on this host; null if it has one rank, or no arena
  const Hosts hosts;                     // empty if all ranks are on one host, or if some host has no shared memory
  Departures departures;
  int oversubscribed_calls = 0;  // remaining calls with the oversubscribed wait policy; set when a wait lost its core
  std::optional<Error> broken;   // the reason why no further call runs here

 private:
  std::uint64_t memory_moved() { return epochs ? std::exchange(epochs->copied, 0) : 0; }
};

}  // namespace ringcomm
