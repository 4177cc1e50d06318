// Runs a call on the caller's thread until it is complete.
#pragma once

#include <string_view>

#include "base/task.hpp"
#include "collectives/context.hpp"

namespace ringcomm {

// Polls `interrupted` (may be null) every 50 ms. If there is no progress for long, prints a stall
// report on stderr, which names `collective` and the task.
void run_call(Task& task, std::string_view collective, CallContext& context, bool (*interrupted)());

}  // namespace ringcomm
