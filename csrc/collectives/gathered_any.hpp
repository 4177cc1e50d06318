// All-gather in which each rank knows only how long its own part is (Call::received).
#pragma once

#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"

namespace ringcomm {

class Channel;

// Creates a task that gathers the counts, allocates the output, and gathers the parts.
std::unique_ptr<Task> make_gathered_any(Channel& channel, Call&& call);

}  // namespace ringcomm
