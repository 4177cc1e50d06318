// A call run to its end on the caller's thread.
#pragma once

#include "base/task.hpp"
#include "collectives/context.hpp"

namespace ringcomm {

// `interrupted` is asked every 50 ms, may be null. Says on stderr when nothing has moved for long.
void run_call(Task& task, CallContext& context, bool (*interrupted)());

}  // namespace ringcomm
