// What an owner's worker does to its shards when ranks ask that share no memory with it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "param_server/messages.hpp"
#include "transport/mail.hpp"

namespace ringcomm::store {

struct Served {
  std::shared_ptr<Shard> shard;  // null: only clocks
  std::shared_ptr<Clocks> clocks;
  std::vector<int> ranks;  // of the workers, in the order of their clocks
  Gathering gathering;
  Rule rule = Rule::get;  // by which what is gathered is applied where nobody brings more: of the last push
  RuleOptions options;
};

// Requests of one rank are done in the order in which they were sent; one that is not due holds up those behind it.
// Each rank has few under way (param_server/client.hpp), so what waits here is bounded.
class Server {
 public:
  // ---- any thread
  void serve(std::uint64_t shard, Served served);
  void forget(std::uint64_t shard);
  bool serves() const;

  // ---- the worker
  void take(int peer, std::vector<std::byte> request);
  bool turn(Mail& mail);  // answers what is due. True if anything was
  void left(int rank);    // has finished, wherever it is a worker

 private:
  struct Peer {
    std::deque<std::vector<std::byte>> waiting;
    bool gone = false;
    std::uint64_t last = 0;              // request
    Arrival arrival = Arrival::applied;  // of the gradient that comes in parts
    std::shared_ptr<Served> open;        // what it is added to; null: nothing
    std::size_t sum = 0;                 // to which of that shard's sums
  };
  bool answer_first(int rank, Peer& peer, Mail& mail);
  static bool is_due(Served& it, const Due& due);
  static void change(Peer& peer, const std::shared_ptr<Served>& it, const Head& head, const std::byte* rest,
                     Head& answer, std::byte* result);
  static void advance(Served& it, int rank, std::int64_t clock);
  std::shared_ptr<Served> find(std::uint64_t shard) const;

  mutable std::mutex mutex_;  // guards the map
  std::map<std::uint64_t, std::shared_ptr<Served>> served_;
  std::map<int, Peer> peers_;
};

}  // namespace ringcomm::store
