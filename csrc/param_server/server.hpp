// Runs requests to this rank's shards from ranks that share no memory with it. The worker of the
// shard's owner runs the server, through Service.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "param_server/messages.hpp"
#include "transport/mail.hpp"

namespace ringcomm::store {

struct Served {
  std::shared_ptr<Shard> shard;  // null: only clocks
  std::shared_ptr<Clocks> clocks;
  std::vector<int> ranks;  // ranks of the workers, in the order of their clocks
  Gathering gathering;
  Rule rule = Rule::get;  // rule of the last push, which applies gathered gradients if no worker adds more
  RuleOptions options{};
};

// Runs the requests of a rank in the order sent; a request that is not due delays this rank's later
// ones. Each rank has few segments in flight (param_server/client.hpp), so the queues are bounded.
//
// If several ranks are in the middle of a request, the server admits one at full speed: the rank
// with the lowest clock, and of these the one that began first. Each of the others may have one
// segment in flight, which occupies the link while the admitted rank changes. Served one after the
// other, the requests of a burst are complete after 1, 2, ... times the time of one request; served
// together, all of them after the last of these times. The ranks then compute at different times,
// so that the next requests meet an idle link. Fewer bytes queue in the network: a burst overflows
// the switch's buffer otherwise.
class Server {
 public:
  // ---- any thread
  void serve(std::uint64_t shard, Served served);
  void forget(std::uint64_t shard);
  bool serves() const;

  // ---- the worker
  void take(int peer, std::vector<std::byte> request);
  bool turn(Mail& mail);  // answers due requests. True if there were any
  void left(int rank);    // marks the rank as finished, for all shards of which it is a worker

 private:
  static constexpr std::uint32_t kWindow = 8;  // segments in flight of the admitted rank

  struct Peer {
    // Clock of the rank, and the number of requests that began before, when its current one began.
    struct Turn {
      std::int64_t clock = 0;
      std::uint64_t began = 0;
      auto operator<=>(const Turn&) const = default;
    };
    std::optional<Turn> turn;  // empty: no request has begun and not ended
    std::deque<std::vector<std::byte>> waiting;
    bool departed = false;
    std::uint64_t last = 0;              // number of the last request
    Arrival arrival = Arrival::applied;  // state of the gradient that arrives in parts
    std::shared_ptr<Served> open;        // shard to which that gradient is added; null: none
    std::size_t sum = 0;                 // index of the sum in that shard
  };
  bool answer_first(int rank, Peer& peer, Mail& mail);
  std::uint32_t window_of(const Peer& peer) const;
  static bool is_due(Served& it, const Due& due);
  static void change(Peer& peer, const std::shared_ptr<Served>& it, const Head& head, const std::byte* rest,
                     Head& answer, std::byte* result);
  static void advance(Served& it, int rank, std::int64_t clock);
  std::shared_ptr<Served> find(std::uint64_t shard) const;

  mutable std::mutex mutex_;  // guards served_
  std::map<std::uint64_t, std::shared_ptr<Served>> served_;
  std::map<int, Peer> peers_;
  std::uint64_t begun_ = 0;  // requests
};

}  // namespace ringcomm::store
