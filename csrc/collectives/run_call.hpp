// Runs a call on the caller's thread until it is complete.
#pragma once

#include "base/task.hpp"
#include "collectives/context.hpp"

namespace ringcomm {

// Polls `interrupted` (may be null) every 50 ms. Prints a stall report on stderr if there is no
// progress for long.
void run_call(Task& task, CallContext& context, bool (*interrupted)());

}  // namespace ringcomm
