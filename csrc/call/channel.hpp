// One ordered stream of collective calls over one group of ranks: a transport with tags of its own, and a slot of the
// host's arena if all the group is on one host. One call at a time; every rank of the group makes the same calls in the
// same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/call.hpp"
#include "base/error.hpp"
#include "base/task.hpp"
#include "base/tuned.hpp"
#include "call/choose.hpp"
#include "call/comparison.hpp"
#include "call/own_algorithms.hpp"
#include "kernels/kernels.hpp"
#include "levels/two_level.hpp"
#include "memory/scattered.hpp"
#include "messages/run_schedule.hpp"
#include "node/epochs.hpp"
#include "schedule/schedule_cache.hpp"

namespace ringcomm {

struct ChannelConfig {
  std::size_t segment_bytes = 0;  // of a schedule's instance; 0: chosen
  std::size_t node_segment_bytes = kMemorySegment;
  std::size_t window = 0;                    // instances in flight; 0: chosen
  std::int64_t spin_ns = 0;                  // a waiting caller keeps its core for so long: where every rank has one
  bool check = true;                         // compare descriptors before data moves
  int goodbye_tag = -1;                      // where a leaving peer says so; -1: somebody else listens (the engine)
  Network network;                           // between ranks, by messages
  std::vector<int> hosts;                    // by the transport's rank; empty: each has one of its own
  std::string algorithm;                     // of all-reduces that name none; "": chosen
  std::vector<Rule> rules;                   // of a tuning file
  double stall_warn_seconds = 60;            // for run(); 0: never
  std::shared_ptr<const OwnAlgorithms> own;  // may be null
};

class Channel {
 public:
  // `peers[i]` is the transport's rank of group rank i; `me` this rank's place in it. `node`: of the group's ranks on
  // this host, in their order, the same on every host; null everywhere if some host has none.
  Channel(std::shared_ptr<Transport> transport, std::vector<int> peers, int me, TagStream tags,
          std::shared_ptr<Node> node, int slot, ChannelConfig config);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return me_; }
  int size() const { return static_cast<int>(peers_.size()); }
  // What would run for a call. Depends only on what all ranks know to be equal.
  const Choice& choose(const Call& call);
  bool takes_fragments(const Call& call);  // not packed

  // The call as a task: compares descriptors (unless agreed), then moves the data. One at a time.
  std::unique_ptr<Task> start(Call&& call);
  void run(Call call, bool (*interrupted)());  // to the end on this thread; `interrupted` is asked every 50 ms

  // Of what a call met: after a fatal error, and once a rank has left, nothing more runs here.
  void end_after(const Error& error);
  const std::optional<Error>& broken() const { return broken_; }  // why nothing more runs here
  void leave() noexcept;                                          // tells the peers that this rank makes no more calls

 private:
  friend class CallTask;
  const Choice& choice(const Call& call);  // where its data does not ride
  std::shared_ptr<const Schedule> schedule(const Call& call, const Choice& choice);
  void warn(std::string_view call, std::int64_t waited_ns) const;  // that run() waits
  void show_state(std::uint32_t state);                            // as Mailbox has it
  void listen();                                                   // posts the receive for a goodbye
  void check_departures();  // throws Error(left) if the current call needs somebody who has left
  std::vector<int> everyone() const;
  bool on_one_host() const { return epochs_ && node_->size() == size(); }
  bool gathers(const Call& call) const;  // its data rides with the comparison of calls by messages
  bool compares_by_hosts() const { return hosts_.number() > 1; }
  std::unique_ptr<Comparison> comparison();

  std::shared_ptr<Transport> transport_;
  std::vector<int> peers_;
  int me_;
  TagStream tags_;
  std::shared_ptr<Node> node_;
  std::unique_ptr<Epochs> epochs_;
  Hosts hosts_;
  std::vector<int> speakers_;  // the transport's ranks, by host, where calls are compared by hosts
  ChannelConfig config_;
  Riding riding_;  // with the comparison of calls by messages
  std::uint64_t sequence_ = 0;
  std::optional<Error> broken_;
  Chooser chooser_;
  ScheduleCache schedules_;
  struct Goodbye {
    std::int64_t rank = -1;
    std::uint64_t calls = 0;  // that the leaver has made
  };
  Goodbye incoming_, outgoing_;
  std::vector<Goodbye> departed_;
  Ticket listening_ = kNoTicket;
  bool left_ = false;
};

}  // namespace ringcomm
