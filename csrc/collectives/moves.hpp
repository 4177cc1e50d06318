// From a call to the task that moves its data, once every rank is known to want the same.
#pragma once

#include <memory>
#include <string_view>

#include "base/call.hpp"
#include "base/task.hpp"
#include "collectives/context.hpp"
#include "executor/run_schedule.hpp"

namespace ringcomm {

// Dtype, op and what elements travel as. With feedback, the call begins there.
RunOptions run_options(CallContext& context, const Call& call, std::string_view way);

// Turns the integers of a finished logical op into 0 and 1 on a rank where nothing was combined: the only rank, the
// first of a scan, the second of an exscan. Everywhere else the kernels have done so.
void finish_logical_op(const Call& call, int rank, int size);

// The call outlives what moves it.
std::unique_ptr<Task> move_alone(const Call& call);  // one rank: copies and scales
std::unique_ptr<Task> move_by_schedule(CallContext& context, const Call& call, std::shared_ptr<const Schedule> schedule,
                                       const Choice& choice);
std::unique_ptr<Task> move_on_two_levels(CallContext& context, const Call& call, const Choice& choice);

}  // namespace ringcomm
