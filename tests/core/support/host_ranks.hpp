// Ranks as threads on simulated hosts: each host has its own arenas, and bytes between hosts are
// counted.
#pragma once

#include <atomic>
#include <map>
#include <utility>

#include "ranks.hpp"

namespace ringcomm::testing {

// The number of data bytes between hosts, by (from, to).
class Links {
 public:
  explicit Links(const std::vector<int>& host_of) : host_of_(host_of) {
    for (const int from : host_of) {
      for (const int to : host_of) carried_.try_emplace({from, to}, 0);
    }
  }
  void carry(int from, int to, std::size_t nbytes) { carried_.at({host(from), host(to)}) += nbytes; }
  std::size_t into(int of) const {
    std::size_t sum = 0;
    for (const auto& [link, nbytes] : carried_) sum += link.first != of && link.second == of ? nbytes.load() : 0;
    return sum;
  }
  std::size_t between(int from, int to) const { return carried_.at({from, to}); }
  std::size_t all() const {
    std::size_t sum = 0;
    for (const auto& [link, nbytes] : carried_) sum += link.first != link.second ? nbytes.load() : 0;
    return sum;
  }
  void reset() {
    for (auto& [link, nbytes] : carried_) nbytes = 0;
  }

 private:
  int host(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  std::vector<int> host_of_;
  std::map<std::pair<int, int>, std::atomic<std::size_t>> carried_;
};

class CountingTransport final : public Transport {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, Links& links) : inner_(std::move(inner)), links_(links) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int tag_limit() const override { return inner_->tag_limit(); }
  Ticket send(int peer, int tag, const void* data, std::size_t nbytes) override {
    links_.carry(rank(), peer, nbytes);
    return inner_->send(peer, tag, data, nbytes);
  }
  Ticket receive(int peer, int tag, void* data, std::size_t nbytes) override {
    return inner_->receive(peer, tag, data, nbytes);
  }
  bool probe(int peer, int tag, Found& found) override { return inner_->probe(peer, tag, found); }
  Ticket receive(const Found& found, void* data) override { return inner_->receive(found, data); }
  bool poll() override { return inner_->poll(); }
  bool done(Ticket ticket, Arrival* arrival) override { return inner_->done(ticket, arrival); }
  void cancel(Ticket ticket) noexcept override { inner_->cancel(ticket); }
  std::size_t in_flight() const override { return inner_->in_flight(); }
  MessageCounts counts() const override { return inner_->counts(); }

 private:
  std::unique_ptr<Transport> inner_;
  Links& links_;
};

// Returns the nodes by rank: each host's ranks share arenas.
inline std::vector<std::shared_ptr<Node>> nodes_on(const std::vector<int>& host_of) {
  std::vector<std::shared_ptr<Node>> nodes(host_of.size());
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank]) continue;
    const Hosts hosts(host_of, static_cast<int>(rank));
    const auto here = Node::for_threads(static_cast<int>(hosts.here().size()));
    for (std::size_t i = 0; i < here.size(); ++i) nodes[static_cast<std::size_t>(hosts.here()[i])] = here[i];
  }
  return nodes;
}

// Runs body(context, links) on all ranks; host_of[r] is the host of rank r.
template <class Body>
void on_hosts(const std::vector<int>& host_of, ChannelConfig config, Body body) {
  const int size = static_cast<int>(host_of.size());
  const auto nodes = nodes_on(host_of);
  const auto hub = make_threads_hub(size);
  Links links(host_of);
  std::barrier<> barrier(size);
  std::vector<const void*> shown(host_of.size());
  std::vector<std::string> texts(host_of.size());
  config.goodbye_tag = 0;
  config.hosts = host_of;
  on_ranks(size, [&](int rank) {
    std::vector<int> peers;
    for (int i = 0; i < size; ++i) peers.push_back(i);
    const auto& node = nodes[static_cast<std::size_t>(rank)];
    auto transport = std::make_unique<CountingTransport>(make_threads_transport(hub, rank), links);
    Channel channel(std::move(transport), peers, rank, TagStream(1, 1000), node, 0, config);
    RankContext context{rank, size, channel, node.get(), barrier, shown, texts};
    body(context, links);
    barrier.arrive_and_wait();
  });
}

// Layouts of 1 to 9 ranks: even and uneven, hosts consecutive and mixed, a rank alone on its host.
inline const std::vector<std::vector<int>> kHostLayouts{{0, 1},
                                                        {0, 0, 1},
                                                        {0, 1, 0, 1},
                                                        {0, 1, 1, 1},
                                                        {0, 0, 0, 1, 1},
                                                        {0, 0, 1, 2, 2, 2},
                                                        {0, 1, 2, 0, 1, 2, 0},
                                                        {0, 0, 0, 0, 1, 1, 1, 1},
                                                        {2, 2, 2, 0, 0, 0, 0, 1, 1}};

}  // namespace ringcomm::testing
