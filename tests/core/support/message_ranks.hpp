// Ranks as threads that send each other messages, on hosts with or without shared memory.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "check.hpp"
#include "p2p/point_to_point.hpp"
#include "transport/threads.hpp"

namespace ringcomm::testing {

using Bytes = std::vector<std::byte>;

inline std::byte pattern(int source, int tag, std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(static_cast<std::uint64_t>(source) * 31 + static_cast<std::uint64_t>(tag) * 7 +
                                number * 13 + at);
}

// The ranks of one communicator, on hosts with or without shared memory.
class World {
 public:
  World(std::vector<int> host_of, bool shared) : host_of_(std::move(host_of)), shared_(shared) {
    hub = make_threads_hub(size());
    const int hosts = *std::max_element(host_of_.begin(), host_of_.end()) + 1;
    for (int host = 0; host < hosts && shared_; ++host) nodes_.push_back(Node::for_threads(on(host)));
  }
  World fresh() const { return World(host_of_, shared_); }  // an equal world without earlier messages
  int size() const { return static_cast<int>(host_of_.size()); }
  std::unique_ptr<PointToPoint> make(int rank, bool reads_peers = true) {
    PointToPoint::Group group;
    group.reads_peers = reads_peers;
    group.first_tag = 5;
    if (size() % 2 == 0) group.piece = 20'000;  // a long message has many pieces
    group.rank = rank;
    group.size = size();
    const int host = host_of_[static_cast<std::size_t>(rank)];
    if (shared_) {
      for (int other = 0; other < size(); ++other) {
        if (host_of_[static_cast<std::size_t>(other)] != host) continue;
        if (other == rank) group.node = node(rank);
        group.on_host.push_back(other);
      }
    }
    if (!shared_ || on(host) < size()) group.transport = make_threads_transport(hub, rank);
    return std::make_unique<PointToPoint>(std::move(group));
  }
  std::shared_ptr<Node> node(int rank) const {  // null: the rank shares memory with no other rank
    if (!shared_) return nullptr;
    const auto host = static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)]);
    return nodes_[host][static_cast<std::size_t>(std::count(host_of_.begin(), host_of_.begin() + rank, host))];
  }
  bool neighbours(int a, int b) const {
    return shared_ && host_of_[static_cast<std::size_t>(a)] == host_of_[static_cast<std::size_t>(b)];
  }
  // Returns the messages sent to `rank` over transports. Collective: no rank sends afterwards.
  std::vector<std::uint64_t> sent_to(int rank, const PointToPoint& ranks, std::barrier<>& barrier) {
    const std::vector<std::uint64_t> mine = ranks.sent();
    {
      const std::lock_guard lock(mutex_);
      sent_.resize(host_of_.size());
      sent_[static_cast<std::size_t>(rank)] = mine;
    }
    barrier.arrive_and_wait();
    std::vector<std::uint64_t> here;
    for (const auto& message : sent_) {
      if (!message.empty()) here.push_back(message[static_cast<std::size_t>(rank)]);
    }
    return here;
  }
  std::shared_ptr<ThreadsHub> hub;

 private:
  int on(int host) const { return static_cast<int>(std::count(host_of_.begin(), host_of_.end(), host)); }
  std::vector<int> host_of_;
  bool shared_;
  std::vector<std::vector<std::shared_ptr<Node>>> nodes_;
  std::mutex mutex_;
  std::vector<std::vector<std::uint64_t>> sent_;  // by sender
};

// Memory of one rank, in its arena if there is one.
class Array {
 public:
  Array(std::shared_ptr<Node> node, std::size_t nbytes)
      : node_(std::move(node)), own_(node_ ? 0 : nbytes), size_(nbytes),
        offset_(node_ ? node_->allocate(std::max<std::size_t>(nbytes, 1)) : 0) {}
  Array(const Array&) = delete;
  ~Array() {
    if (node_) node_->free(offset_);
  }
  std::byte* data() { return node_ ? node_->at(node_->rank(), offset_) : own_.data(); }
  std::size_t size() const { return size_; }
  std::byte& operator[](std::size_t i) { return data()[i]; }

 private:
  const std::shared_ptr<Node> node_;
  Bytes own_;
  const std::size_t size_;
  const std::uint64_t offset_;
};

inline const std::vector<std::pair<std::vector<int>, bool>> kWorlds{
    {{0}, true},           {{0, 0}, true},    {{0, 0, 0}, true},       {{0, 0, 0, 0, 0}, true}, {{0, 0}, false},
    {{0, 0, 0, 0}, false}, {{0, 0, 1}, true}, {{0, 1, 0, 1, 1}, true}, {{0, 1, 2}, true}};

inline void run_send(PointToPoint& ranks, int peer, int tag, const Bytes& bytes) {
  Request send(Request::Kind::send, peer, tag, const_cast<std::byte*>(bytes.data()), bytes.size());
  ranks.run(send, nullptr);
}

template <class Memory>
Envelope run_receive(PointToPoint& ranks, int peer, int tag, Memory& bytes) {
  Request receive(Request::Kind::receive, peer, tag, bytes.data(), bytes.size());
  ranks.run(receive, nullptr);
  return receive.status;
}

template <class Body>
void on_world(World& world, Body body) {
  std::barrier<> barrier(world.size());
  on_ranks(world.size(), [&](int rank) {
    const auto ranks = world.make(rank);
    barrier.arrive_and_wait();
    body(rank, *ranks, barrier);
    barrier.arrive_and_wait();
  });
}

template <class Act>
Error error_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  CHECK(!"nothing was thrown");
  std::abort();
}

}  // namespace ringcomm::testing
