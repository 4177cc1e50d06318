// Compares the descriptors of all ranks before data moves. Small calls send their data with them.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"
#include "collectives/consistency/inline_data.hpp"
#include "collectives/context.hpp"

namespace ringcomm {

// The check of a channel's calls, one at a time. It is done when all ranks are known to agree, and
// call.even is known. Throws Error(mismatch), identical on every rank, if they disagree.
class ConsistencyCheck : public Task {
 public:
  // Publishes this rank's descriptor. If the call is agreed already, only starts the data movement.
  // `inline_data`: the data is sent within the check; ranks with equal calls pass equal values.
  // `call` lives until collect().
  virtual void begin(Call& call, bool inline_data) = 0;
  // Returns, when done, the remaining work of a call with inline data; null if the data was not
  // sent inline on all ranks.
  virtual std::unique_ptr<Task> collect() = 0;
};

// Returns a longer sleep for waits on ranks of this host: their arrival wakes the sleeper.
inline std::chrono::nanoseconds patient(std::chrono::nanoseconds longest) {
  return std::max<std::chrono::nanoseconds>(longest, std::chrono::milliseconds(20));
}

// Creates the check for ranks that are all on one host. It uses mailboxes; the same arrival begins
// the pass in shared memory.
std::unique_ptr<ConsistencyCheck> make_memory_consistency_check(CallContext& context);
// Creates the check by messages between hosts, and by shared memory within them. `most`: limits of
// inline data; equal on all ranks.
std::unique_ptr<ConsistencyCheck> make_message_consistency_check(CallContext& context, const InlineLimits& most);

// Allocates memory in this rank's arena through which a leader and the ranks of its host exchange
// data (Mailbox::leader_scratch). The slot keeps this memory. Does nothing if the slot has it
// already. Call this before the ranks of the host synchronise. It may throw Error(invalid) on a
// single rank. So call it before a channel is created, and let the ranks agree on the outcome.
void reserve_leader_scratch(Node& node, int slot);

}  // namespace ringcomm
