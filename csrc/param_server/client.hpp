// The requests of a rank to shards in memory that the rank does not share. Python's RemoteShard
// makes the requests; Service sends them.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "engine/operation.hpp"
#include "param_server/messages.hpp"
#include "transport/mail.hpp"

namespace ringcomm::store {

// A request. The caller owns the arrays, and keeps them until done(). Afterwards `arrival`,
// `version` and `group` hold the server's answer.
struct PostedRequest final : Operation {
  PostedRequest() : Operation("store") {}
  int peer = 0;
  Head head;  // without `number`, `begins`, `ends` and the array flags
  std::vector<Range> ranges;
  std::size_t element = sizeof(float);
  const void *gradient = nullptr, *pulled = nullptr;
  void* result = nullptr;

  Arrival arrival = Arrival::applied;
  std::uint64_t version = 0, group = 0;
};

// Cuts requests into segments. A server applies and answers each segment on arrival, so that both
// directions of a link are busy. Few segments are in flight to each server, so a server buffers
// little, and other peers get their share of the link. A request begins with kFirstWindow segments;
// answers set the window from then on (Server::window_of). Segments are so short that MPI sends
// them without a handshake, which would queue behind data.
class Client {
 public:
  static constexpr std::size_t kSegment = 48 << 10;  // bytes of one array; a multiple of Shard::kStripe
  static constexpr std::size_t kFirstWindow = 2;

  void post(
      std::shared_ptr<PostedRequest> request);  // any thread. A request that can no longer be sent fails immediately

  // ---- the worker
  bool send(Mail& mail);  // sends segments as far as allowed. True if any was sent
  void answered(int peer, const std::vector<std::byte>& answer);
  void left(int rank, const Error& why);
  void end(const Error& why);
  bool waits() const { return waits_; }  // true: an answer is outstanding

 private:
  struct Cut {  // Position in a request: the unsent rest begins in ranges[range], after `within` elements
    std::size_t range = 0, within = 0, sent = 0;
    bool begun = false;
  };
  struct Segment {
    std::shared_ptr<PostedRequest> request;
    std::size_t at = 0, count = 0;  // elements
    bool ends = false;
  };
  struct Peer {
    std::deque<std::shared_ptr<PostedRequest>> waiting;
    Cut cut;  // position in the first waiting request
    std::deque<Segment> in_flight;
    std::size_t window = kFirstWindow;  // maximum of in_flight
    std::uint64_t number = 0;
    std::exception_ptr departure_error;
  };
  void send_segment(int rank, Peer& peer, Mail& mail);
  static std::vector<std::byte> message_of(const PostedRequest& request, Head head, const std::vector<Range>& ranges,
                                           const Segment& segment);
  static void fail(Peer& peer, std::exception_ptr why);

  std::mutex mutex_;  // guards the next two fields
  std::vector<std::shared_ptr<PostedRequest>> posted_;
  std::exception_ptr over_;
  std::map<int, Peer> peers_;
  bool waits_ = false;
};

}  // namespace ringcomm::store
