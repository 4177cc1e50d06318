// Runs one verdict as a task. Fused tensors are reduced in one call: in their own memory if the set
// is on one host, otherwise packed and unpacked. A single tensor is reduced in its own memory. The
// executor runs these tasks.
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

// Makes the task of a verdict. It fills the operations' outputs and counts, but does not finish
// them. `joined`: a rank of the set has joined, and contributes identities. `buffer`: memory for
// packed tensors.
std::unique_ptr<Task> make_bucket(const Context& context, Channel& channel, ArenaRoom& buffer,
                                  std::vector<Agreed> parts, bool joined);

}  // namespace ringcomm
