// Ranks as threads, each with a channel: the common set-up of the channel's tests.
#pragma once

#include <barrier>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "collectives/channel.hpp"
#include "shm/node.hpp"
#include "transport/threads.hpp"

namespace ringcomm::testing {

struct RankContext {
  int rank, size;
  Channel& channel;
  Node* node;  // null: messages only
  std::barrier<>& barrier;
  std::vector<const void*>& shown;  // one pointer per rank, for comparing buffers
  std::vector<std::string>& texts;  // one text per rank

  // Returns whether every rank's buffer holds rank 0's bytes. Collective.
  bool same_everywhere(const void* data, std::size_t nbytes) {
    shown[static_cast<std::size_t>(rank)] = data;
    barrier.arrive_and_wait();
    const bool same = nbytes == 0 || std::memcmp(data, shown[0], nbytes) == 0;
    barrier.arrive_and_wait();
    return same;
  }
  // Returns whether every rank passes the same text. Collective.
  bool same_text(const std::string& text) {
    texts[static_cast<std::size_t>(rank)] = text;
    barrier.arrive_and_wait();
    const bool same = text == texts[0];
    barrier.arrive_and_wait();
    return same;
  }
};

template <class Body>
void with_channels(int size, bool arena, ChannelConfig config, Body body) {
  const auto hub = make_threads_hub(size);
  const auto nodes =
      arena ? Node::for_threads(size) : std::vector<std::shared_ptr<Node>>(static_cast<std::size_t>(size));
  std::barrier<> barrier(size);
  std::vector<const void*> shown(static_cast<std::size_t>(size));
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  config.goodbye_tag = 0;
  on_ranks(size, [&](int rank) {
    std::vector<int> peers;
    for (int i = 0; i < size; ++i) peers.push_back(i);
    Channel channel(make_threads_transport(hub, rank), peers, rank, TagStream(1, 1000),
                    nodes[static_cast<std::size_t>(rank)], 0, config);
    RankContext context{rank, size, channel, nodes[static_cast<std::size_t>(rank)].get(), barrier, shown, texts};
    body(context);
    barrier.arrive_and_wait();
  });
}

// Returns the algorithms to try: every built-in that fits, "" (automatic), and for all-reduce with
// an arena "shared".
inline std::vector<std::string> paths(Collective collective, bool arena) {
  std::vector<std::string> names{""};
  for (const std::string_view name : algorithm_names(collective)) names.emplace_back(name);
  if (arena && collective == Collective::allreduce) names.emplace_back("shared");
  return names;
}

}  // namespace ringcomm::testing
