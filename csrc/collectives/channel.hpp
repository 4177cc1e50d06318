// One ordered stream of collective calls over one group of ranks: a transport with tags of its own, and a slot of the
// host's arena if all the group is on one host. One call at a time; every rank of the group makes the same calls in the
// same order.
#pragma once

#include "base/task.hpp"
#include "collectives/consistency/consistency_check.hpp"
#include "collectives/context.hpp"
#include "collectives/resolver.hpp"

namespace ringcomm {

class Channel;

// Of some ranks of a channel of several hosts, for calls that are made of such calls, all agreed, in their own order.
struct SubChannels {
  std::unique_ptr<Channel> host;  // this host's ranks, by local rank
  std::unique_ptr<Channel> lane;  // the ranks with this local rank, by host
};

class Channel {
 public:
  // `peers[i]` is the transport's rank of group rank i; `me` this rank's index in it. `node`: of the group's ranks on
  // this host, in their order, the same on every host; null everywhere if some host has none.
  Channel(std::shared_ptr<Transport> transport, std::vector<int> peers, int me, TagStream tags,
          std::shared_ptr<Node> node, int slot, ChannelConfig config);

  int rank() const { return context_.me; }
  int size() const { return context_.size(); }
  // What would run for a call. Depends only on what all ranks know to be equal.
  const Choice& choose(const Call& call) { return resolver_.choose(call); }
  bool takes_fragments(const Call& call) { return resolver_.takes_fragments(call); }  // not packed
  bool sends(const Call& call);                                                       // messages, of its data

  // The call as a task: compares descriptors (unless agreed), then moves the data. One at a time.
  std::unique_ptr<Task> start(Call&& call);
  void run(Call&& call, bool (*interrupted)());  // to the end on this thread; `interrupted` is asked every 50 ms
  void run(const Call& call, bool (*interrupted)()) { run(Call(call), interrupted); }

  // What a MemoryLocation keeps from call to call; it goes first.
  std::shared_ptr<void>& device_state() { return device_state_; }
  // Made when first asked for, at the same point of the calls on all ranks. For hosts of as many ranks each.
  SubChannels& sub_channels();
  const std::shared_ptr<Node>& node() const { return context_.node; }
  const Hosts& hosts() const { return context_.hosts; }
  bool on_one_host() const { return context_.on_one_host(); }
  const std::string& device_route() const { return context_.config.device_route; }
  CallContext& context() {
    return context_;
  }  // of a MemoryLocation that sends messages of its own, while no task runs here

  // So that calls which wait for messages end when a rank of this host has died: the group's ranks here, by process.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
    context_.departures.watch(std::move(processes), std::move(rank_of));
  }
  void look_for_loss();  // throws if the current call needs somebody who has gone, or a rank of this host has failed
  // Of what a call met: after a fatal error, and once a rank has left, nothing more runs here.
  void end_after(const Error& error) { context_.end_after(error); }
  void fail(const Error& error);  // the same of what others do not meet by themselves: they are told
  const std::optional<Error>& broken() const { return context_.broken; }
  void book(Collective collective, const Choice& choice, std::uint64_t calls) {
    context_.book(collective, choice, calls);
  }
  Account& account() { return context_.account.account(); }
  // What the call that has ended last counts as; null where nobody looks at a clock.
  std::shared_ptr<Entry> timed_entry() const { return context_.account.timed_entry(); }
  // Sends the peers that this rank makes no more calls. `within_call`: it has not finished its last one either, which
  // then fails on peers that make it later, though all ranks have arrived.
  void leave(bool within_call = false) noexcept;

 private:
  void count_time(std::int64_t begun);

  CallContext context_;
  Resolver resolver_;
  std::unique_ptr<ConsistencyCheck> check_;  // null: calls are not compared, and no pass over memory begins with it
  bool left_ = false;
  SubChannels sub_channels_;
  std::shared_ptr<void> device_state_;
};

}  // namespace ringcomm
