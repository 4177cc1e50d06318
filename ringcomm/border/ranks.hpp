// Transports and channels (_ranks.pxi), in types that Cython passes.
#pragma once

#include <dlfcn.h>
#include "call/channel.hpp"
#include "node/node.hpp"
#include "transport/mpi.hpp"
#include "transport/threads.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline std::shared_ptr<Transport> mpi_transport(const std::string& extension, std::uint64_t comm, int rank, int size,
                                                int tag_limit, MpiLibrary library) {
  library.dl_handle = dlopen(extension.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!library.dl_handle) throw Error(ErrorKind::invalid, "mpi4py's extension " + extension + " is not loaded");
  return make_mpi_transport(library, comm, rank, size, tag_limit);
}
inline std::shared_ptr<Transport> threads_transport(std::shared_ptr<ThreadsHub> hub, int rank) {
  return make_threads_transport(std::move(hub), rank);
}
inline std::shared_ptr<Channel> make_channel(std::shared_ptr<Transport> transport, std::vector<int> peers, int me,
                                             int first_tag, int tags, std::shared_ptr<Node> node, int slot,
                                             ChannelConfig config) {
  config.goodbye_tag = first_tag;
  return std::make_shared<Channel>(std::move(transport), std::move(peers), me, TagStream(first_tag + 1, tags - 1),
                                   std::move(node), slot, config);
}
inline std::string why_broken(const Channel& channel) {
  return channel.broken() ? channel.broken()->what() : std::string();
}
// The parts of `count` elements among all ranks stand for the counts of collectives that have some.
inline std::string choose(Channel& channel, Call call) {
  const auto size = static_cast<std::size_t>(channel.size());
  if (call.collective != Collective::allreduce && call.collective != Collective::reduce &&
      call.collective != Collective::broadcast) {
    for (std::size_t i = 0; i < size; ++i) call.counts.push_back(split(call.count, size, i).count);
    call.even = call.count % size == 0;
  }
  return channel.choose(call).name;
}
inline void kill(const std::shared_ptr<ThreadsHub>& hub, int rank) { threads_kill(*hub, rank); }
inline int slots() { return kSlots; }
}  // namespace ringcomm_border
