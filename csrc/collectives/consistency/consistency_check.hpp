// The comparison of what ranks ask for, before data moves. The data of small calls is sent within it.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"
#include "collectives/consistency/inline_data.hpp"
#include "collectives/context.hpp"

namespace ringcomm {

// Of a channel's calls, one at a time. Done when all ranks are known to agree, and call.even is known; throws
// Error(mismatch), the same on every rank, if they do not.
class ConsistencyCheck : public Task {
 public:
  // Says what this rank asks for (nothing of a call that ranks agreed on before: then it only begins to move its data).
  // `inline_data`: its data is sent within the check. Ranks whose calls are equal all pass true, or all pass false.
  // `call` lives until collect().
  virtual void begin(Call& call, bool inline_data) = 0;
  // When done: what is left to do of a call whose data went along; null: it did not, or not everybody's.
  virtual std::unique_ptr<Task> collect() = 0;
};

// Who waits for an arrival on this host is woken by it, so it may sleep longer than who waits for messages.
inline std::chrono::nanoseconds patient(std::chrono::nanoseconds longest) {
  return std::max<std::chrono::nanoseconds>(longest, std::chrono::milliseconds(20));
}

// All ranks are on one host: in its mailboxes, with the one arrival that also begins a pass over its memory.
std::unique_ptr<ConsistencyCheck> make_memory_consistency_check(CallContext& context);
// By messages; inside hosts in memory, as far as ranks share it. `most`: the same on all ranks.
std::unique_ptr<ConsistencyCheck> make_message_consistency_check(CallContext& context, const InlineLimits& most);

// Memory for that in this rank's arena, kept by the slot, unless the slot has it already. Before the ranks of the host
// meet. Throws Error(invalid), on this rank alone: who makes several ranks' channels reserves it before, and agrees.
void reserve_leader_scratch(Node& node, int slot);

}  // namespace ringcomm
