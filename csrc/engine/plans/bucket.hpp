// One verdict to run, as a task: fused tensors are reduced in one call, where they lie if they stay on this host, else
// packed and unpacked; a single one runs where it lies.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_bytes.hpp"
#include "base/task.hpp"
#include "collectives/channel.hpp"
#include "engine/context.hpp"
#include "engine/operation_state.hpp"
#include "host_collectives/arena_room.hpp"

namespace ringcomm {

struct Agreed {
  OperationStatePtr pending;
  std::vector<std::uint64_t> sizes;  // VerdictItem::sizes
};

// Does not finish the operations; fills their outputs and counts. `joined`: some rank of the set has joined, and stands
// in for its operations with identities of its own. `buffer`: where fused tensors are packed.
std::unique_ptr<Task> make_bucket(const Context& context, Channel& channel, ArenaRoom& buffer,
                                  std::vector<Agreed> parts, bool joined);

}  // namespace ringcomm
