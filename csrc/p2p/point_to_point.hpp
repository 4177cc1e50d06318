// Messages from one rank to another: send and receive with tags, with MPI's semantics (MPI-4.1,
// chapter 3). The communicator's send, recv and probe use it.
//
// Several threads may call functions at the same time. Only wait(), run() and probe() block. A
// blocked thread moves all messages of the rank. For background requests another thread may call
// progress().
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

class HostRoute;
class NetworkRoute;

class PointToPoint {
 public:
  struct Group {
    int rank = 0, size = 1;
    std::shared_ptr<Node> node;            // memory of the ranks of this host; may be null
    std::vector<int> on_host;              // the node's ranks, as ranks of the group
    std::shared_ptr<Transport> transport;  // to the other ranks; null if there are none
    int first_tag = 0;                     // the transport's tags from this one on are free
    std::size_t piece = 32 << 20;          // bytes of a long message that are passed to the transport as one
    // lets other work of this process progress while a caller waits; may be null
    std::function<bool()> help;
    bool reads_peers = true;  // reads other processes' memory where the kernel permits it
    bool attended = true;     // a thread calls progress() for background requests at any time
    // ns that a waiting thread polls before it yields; > 0 if every rank has a core
    std::int64_t spin_ns = 0;
    double stall_warn_seconds = 60;                                  // 0: never
    std::shared_ptr<Account> account = std::make_shared<Account>();  // separate by default
  };
  explicit PointToPoint(Group group);
  ~PointToPoint();  // requests in progress fail with Error(shut_down)
  PointToPoint(const PointToPoint&) = delete;
  PointToPoint& operator=(const PointToPoint&) = delete;

  // Monitors the processes of this host's other ranks. A caller that waits for a dead rank then
  // gets an error, even if no memory is shared. `rank_of`: ranks by process id.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of);

  int rank() const { return group_.rank; }
  int size() const { return group_.size; }

  // Begins a request, which may be done immediately. Errors are stored in the request; throws
  // Error(invalid) for an invalid peer or tag.
  void start(Request& request);
  void start(const std::shared_ptr<Request>& request);  // in the background
  // Blocks until the request is done; returns false after `deadline_ns` (in now_ns()'s time). Calls
  // `interrupted` (may be null) every 50 ms, and throws Error(interrupted) if it returns true. The
  // request then continues.
  bool wait(const Request& request, std::int64_t deadline_ns, bool (*interrupted)());
  // Starts a request that the caller owns, and waits for it. The request has ended when this
  // returns or throws. Throws the request's error. After an interruption, a successor may still use
  // the request's memory.
  void run(Request& request, bool (*interrupted)());
  void run(Request& send, Request& receive, bool (*interrupted)());
  // Cancels a receive that no message has matched: it is then done and cancelled. Returns false if
  // it is too late.
  bool cancel(Request& receive);
  // Returns the first message that a receive from `source` with `tag` would get, without receiving
  // it.
  std::optional<Envelope> iprobe(int source, int tag);
  Envelope probe(int source, int tag, bool (*interrupted)());

  bool progress();       // true if anything moved
  bool pending() const;  // there are requests in the background
  bool moving() const;   // progress() should be called soon
  bool far() const { return network_ != nullptr; }

  // Returns the number of header messages sent to each rank; empty without a transport.
  std::vector<std::uint64_t> sent() const;
  // Ends messages with all peers: requests fail. Returns one line for each message that was never
  // received, and for each background request that has not ended, or failed unnoticed.
  // `sent_here`: for each rank, the number of header messages to this rank, by its sent().
  std::vector<std::string> close(const std::vector<std::uint64_t>& sent_here);
  // Informs the peers that this rank sends and receives no more, and waits for no peer. Returns
  // lines as close() does; empty after a fatal error.
  std::vector<std::string> leave();

 private:
  MessageRoute& route_to(int rank);
  void check(int peer, int tag, bool receives) const;
  // ---- waiting
  void finish(Request& request, bool (*interrupted)());
  void withdraw(Request& request) noexcept;
  template <class Over>
  void nap(Over&& over, std::chrono::nanoseconds longest);
  // `over` is called with the mutex held. `what()` is the text for stall warnings. The transfer of
  // the data takes `moving_ns` even if the peer waits for it.
  template <class Over, class What>
  bool wait_for(Over&& over, int peer, std::int64_t deadline_ns, bool (*interrupted)(), What&& what,
                std::int64_t moving_ns);
  std::vector<int> remote_ranks() const;  // ranks with which this rank shares no memory
  // ---- with the mutex held
  void begin(Request& request);
  bool advance();  // does what progress() does
  void sweep();    // removes finished requests from background_; keeps failed ones in failed_
  bool look();     // looks for ranks that left, failed or died
  bool look_if_due();
  void fail_peer(int rank, const Error& why);
  std::optional<Error> source_error(
      int source) const;  // the reason why no message can arrive from there; empty if one can
  void fail_all(const Error& error) noexcept;
  std::vector<std::string> left_over();  // lines that close() and leave() return

  Group group_;
  mutable std::mutex mutex_;  // guards all fields below
  Matcher matcher_;
  std::unique_ptr<HostRoute> host_;
  std::unique_ptr<NetworkRoute> network_;
  std::unique_ptr<MessageRoute> self_;
  std::vector<bool> here_;                         // by rank: shares memory with this rank
  std::vector<std::optional<Error>> peer_errors_;  // by rank: why no message arrives from it any more
  std::vector<std::shared_ptr<Request>> background_;
  std::vector<std::shared_ptr<Request>> failed_;  // their callers may not have read the error yet
  PeerMonitor monitor_;
  std::optional<Error> broken_;
};

}  // namespace ringcomm
