// A channel is an ordered stream of collective calls over one group of ranks. It has a transport
// with private tags and, if the ranks of a host share memory, a slot in their arenas. It runs one
// call at a time; every rank of the group makes the same calls in the same order. The engine and
// ordered calls are built on it.
#pragma once

#include "base/task.hpp"
#include "collectives/consistency/consistency_check.hpp"
#include "collectives/context.hpp"
#include "collectives/resolver.hpp"

namespace ringcomm {

class Channel;

// Channels over subsets of the ranks of a channel that spans several hosts, for calls that consist
// of subcalls. Subcalls are not compared, and are ordered only among themselves.
struct SubChannels {
  std::unique_ptr<Channel> host;  // ranks of this host, by local rank
  std::unique_ptr<Channel> lane;  // ranks with this local rank, by host
};

class Channel {
 public:
  // `peers[i]` is the transport's rank of group rank i; `me` is this rank's group rank. `node`
  // connects the group's ranks on this host, in the order of their group ranks. It is null on all
  // ranks if some host has no shared memory.
  Channel(std::shared_ptr<Transport> transport, std::vector<int> peers, int me, TagStream tags,
          std::shared_ptr<Node> node, int slot, ChannelConfig config);

  int rank() const { return context_.me; }
  int size() const { return context_.size(); }
  // Returns the choice that would run a call. It depends only on data that is equal on all ranks.
  const Choice& choose(const Call& call) { return resolver_.choose(call); }
  bool takes_fragments(const Call& call) { return resolver_.takes_fragments(call); }  // need not be packed
  // Returns whether the route of the call is Route::schedule or Route::two_levels.
  bool sends(const Call& call);

  // Creates the task of a call, which compares descriptors (unless agreed) and then moves the data.
  // One task at a time.
  std::unique_ptr<Task> start(Call&& call);
  // Does the same without moving the call. `call` outlives the task, which may change it.
  std::unique_ptr<Task> start_borrowed(Call& call);
  void run(Call&& call, bool (*interrupted)());  // see CallerRun
  void run(const Call& call, bool (*interrupted)()) { run(Call(call), interrupted); }

  // Returns the state that a MemoryLocation keeps from call to call. It is destroyed before the
  // other members.
  std::shared_ptr<void>& device_state() { return device_state_; }
  // Returns the sub-channels, and creates them at the first use. All ranks must make that use at
  // the same call. Requires hosts with equal numbers of ranks.
  SubChannels& sub_channels();
  const std::shared_ptr<Node>& node() const { return context_.node; }
  const Hosts& hosts() const { return context_.hosts; }
  bool on_one_host() const { return context_.on_one_host(); }
  const std::string& device_route() const { return context_.config.device_route; }
  CallContext& context() {
    return context_;
  }  // for a MemoryLocation that sends its own messages, while no task runs here

  // Watches processes of the group's ranks on this host: if one dies, a wait for messages ends.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
    context_.departures.watch(std::move(processes), std::move(rank_of));
  }
  void look_for_loss();  // throws if the current call needs a rank that left or died, or if a rank of this host failed
  // Handles the error of a call: after a fatal error, and once a rank has left, no further call
  // runs here.
  void end_after(const Error& error) { context_.end_after(error); }
  void fail(const Error& error);  // calls end_after(), and publishes the failure to this host
  const std::optional<Error>& broken() const { return context_.broken; }
  void book(Collective collective, const Choice& choice, std::uint64_t calls) {
    context_.book(collective, choice, calls);
  }
  Account& account() { return context_.account.account(); }
  // Returns the statistics entry of the last finished call; null unless timing is enabled.
  std::shared_ptr<Entry> timed_entry() const { return context_.account.timed_entry(); }
  // Publishes to the peers that this rank makes no more calls. `within_call`: this rank does not
  // finish its last call, which then fails on the peers even if all ranks have arrived.
  void leave(bool within_call = false) noexcept;

 private:
  bool prepare(Call& call);
  std::unique_ptr<Task> start_composed(Call&& call);

  CallContext context_;
  Resolver resolver_;
  // Null if the ranks are not all on one host and calls are not compared.
  std::unique_ptr<ConsistencyCheck> check_;
  bool left_ = false;
  SubChannels sub_channels_;
  std::shared_ptr<void> device_state_;
};

}  // namespace ringcomm
