// Messages from one rank to another: send and receive with tags, in MPI's semantics (MPI-4.1, chapter 3).
//
// Any thread may call, several at once. Nothing but wait() waits; whoever waits moves what there is to move, and for
// what is in the background somebody else may call progress().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "p2p/matcher.hpp"
#include "p2p/request.hpp"
#include "shm/node.hpp"
#include "shm/peer_monitor.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

class HostPath;
class NetworkPath;

class PointToPoint {
 public:
  struct Group {
    int rank = 0, size = 1;
    std::shared_ptr<Node> node;            // of the ranks of this host; may be null
    std::vector<int> on_host;              // the node's ranks, as ranks of the group
    std::shared_ptr<Transport> transport;  // to the others; null if there are none
    int first_tag = 0;                     // of the transport: from there on they are free
    std::size_t piece = 32 << 20;          // bytes of a long message that the transport is given at once
    std::function<bool()> help;            // gives others of this process a turn while a caller waits; may be null
    bool reads_peers = true;               // copies out of other processes' memory where the kernel permits it
    bool attended = true;                  // somebody calls progress() for what is in the background, at any time
    std::int64_t spin_ns = 0;              // who waits keeps its core for so long: where every rank has one
    double stall_warn_seconds = 60;        // 0: never
    std::shared_ptr<Account> account = std::make_shared<Account>();  // with nobody else in it
  };
  explicit PointToPoint(Group group);
  ~PointToPoint();  // what is under way fails with Error(shut_down)
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Of this host's other ranks, by process number: who waits for one that has died is told, also where no memory is
  // shared.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of);

  int rank() const { return group_.rank; }
  int size() const { return group_.size; }

  // Begins a request, which may be done at once. What it meets is in its error; throws Error(invalid) for a peer or tag
  // that is none.
  void start(Request& request);
  void start(const std::shared_ptr<Request>& request);  // in the background
  // Until it is done; false: `deadline_ns` (in now_ns()'s time) comes first. `interrupted` (may be null) is asked every
  // 50 ms; Error(interrupted) if it says so: the request goes on.
  bool wait(const Request& request, std::int64_t deadline_ns, bool (*interrupted)());
  // The two together, for a request of the caller's own; it is over when this returns or throws. Throws what it meets.
  // Where it was interrupted, its memory may belong to its successor.
  void run(Request& request, bool (*interrupted)());
  void run(Request& send, Request& receive, bool (*interrupted)());
  // A receive that no message has matched: it is done and cancelled. False: too late.
  bool cancel(Request& receive);
  // The first message that a receive from `source` with `tag` would get, without receiving it.
  std::optional<Envelope> iprobe(int source, int tag);
  Envelope probe(int source, int tag, bool (*interrupted)());

  bool progress();       // true if anything moved
  bool pending() const;  // requests in the background
  bool moving() const;   // what progress() is to be called for soon
  bool far() const { return network_ != nullptr; }

  // How many letters have gone to each rank over the transport; empty where there is none.
  std::vector<std::uint64_t> sent() const;
  // No peer will come any more: requests fail. What has come and was never received, one line each. `sent_here`: what
  // sent() was, to this rank, of each rank.
  std::vector<std::string> close(const std::vector<std::uint64_t>& sent_here);
  // Tells the peers that this rank sends and receives nothing more, and waits for none. Returns what is left, as
  // close() does; nothing after an error that has ended everything.
  std::vector<std::string> leave();

 private:
  MessagePath& path_to(int rank);
  void check(int peer, int tag, bool receives) const;
  // ---- waiting
  void finish(Request& request, bool (*interrupted)());
  void withdraw(Request& request) noexcept;
  template <class Over>
  void nap(Over&& over, std::chrono::nanoseconds longest);
  // `over` is asked with the mutex held; `what()` is waited for, and needs `moving_ns` even when all are there.
  template <class Over, class What>
  bool wait_for(Over&& over, int peer, std::int64_t deadline_ns, bool (*interrupted)(), What&& what,
                std::int64_t moving_ns);
  std::vector<int> far_ranks() const;  // with which this one shares no memory
  // ---- with the mutex held
  void begin(Request& request);
  bool advance();  // as progress()
  void sweep();    // removes finished requests from background_; keeps failed ones in failed_
  bool look();     // at who has gone
  bool look_now_and_then();
  void lose(int rank, const Error& why);
  std::optional<Error> hopeless(int source) const;  // why no message can come from there
  void break_off(const Error& error) noexcept;
  std::vector<std::string> left_over();  // that close() and leave() tell

  Group group_;
  mutable std::mutex mutex_;  // guards all below
  Matcher matcher_;
  std::unique_ptr<HostPath> host_;
  std::unique_ptr<NetworkPath> network_;
  std::unique_ptr<MessagePath> self_;
  std::vector<bool> here_;                  // by rank: shares memory with this one
  std::vector<std::optional<Error>> gone_;  // by rank: why nothing comes from it any more
  std::vector<std::shared_ptr<Request>> background_;
  std::vector<std::shared_ptr<Request>> failed_;  // their callers may not know yet
  PeerMonitor monitor_;
  std::optional<Error> broken_;
};

}  // namespace ringcomm
