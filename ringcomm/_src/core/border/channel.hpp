// Functions of channels for _channel.pxi, with types that Cython can pass.
#pragma once

#include "collectives/channel.hpp"
#include "collectives/run_call.hpp"
#include "engine/worker/worker.hpp"
#include "shm/node.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline std::shared_ptr<Channel> make_channel(std::shared_ptr<Transport> transport, std::vector<int> peers, int me,
                                             int first_tag, int tags, std::shared_ptr<Node> node, int slot,
                                             ChannelConfig config, std::shared_ptr<Worker> worker) {
  if (worker) config.help = helper_of(std::move(worker));
  config.goodbye_tag = first_tag;
  return std::make_shared<Channel>(std::move(transport), std::move(peers), me, TagStream(first_tag + 1, tags - 1),
                                   std::move(node), slot, std::move(config));
}
inline std::string why_broken(const Channel& channel) {
  return channel.broken() ? channel.broken()->what() : std::string();
}
// Returns the algorithm for a call. Collectives with counts get even parts of `count` elements.
inline std::string choose(Channel& channel, Call call) {
  const auto size = static_cast<std::size_t>(channel.size());
  if (call.collective != Collective::allreduce && call.collective != Collective::reduce &&
      call.collective != Collective::broadcast) {
    for (std::size_t i = 0; i < size; ++i) call.counts.push_back(split(call.count, size, i).count);
    call.even = call.count % size == 0;
  }
  return channel.choose(call).name;
}
// Runs the messages of a schedule on a buffer, in segments, for benchmarks. It is not a call of the
// channel.
inline void run_messages(Channel& channel, const Schedule& borrowed, std::uintptr_t data, std::size_t nbytes,
                         std::size_t segment, std::size_t window, bool (*interrupted)()) {
  std::shared_ptr<const Schedule> schedule(std::shared_ptr<void>(), &borrowed);
  CallContext& context = channel.context();
  RunOptions options;
  options.window = window;
  const Layout layout = Layout::even(reinterpret_cast<void*>(data), nbytes, schedule->blocks, 1, segment);
  const auto task =
      make_run_schedule(*context.transport, std::move(schedule), context.peers, layout, nullptr, context.tags, options);
  run_call(*task, name_of(borrowed.collective), context, interrupted);
}
}  // namespace ringcomm_border
