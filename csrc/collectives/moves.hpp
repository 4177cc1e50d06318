// Creates the task that moves a call's data, once the ranks agree on the call.
#pragma once

#include <memory>
#include <string_view>

#include "base/call.hpp"
#include "base/task.hpp"
#include "collectives/context.hpp"
#include "executor/run_schedule.hpp"

namespace ringcomm {

// Returns options with the call's dtype, op and codec. Begins the call in its feedback, if any;
// `way` as in Feedback::begin().
RunOptions run_options(CallContext& context, const Call& call, std::string_view way);

// Converts the integers of a finished logical op to 0 and 1 on a rank where nothing was combined:
// the only rank of a group, the first rank of a scan, or the second rank of an exscan. On other
// ranks the kernels have done this.
void finish_logical_op(const Call& call, int rank, int size);

// The call must outlive the returned task.
std::unique_ptr<Task> move_alone(const Call& call);  // one rank: copies and scales
std::unique_ptr<Task> move_by_schedule(CallContext& context, const Call& call, std::shared_ptr<const Schedule> schedule,
                                       const Choice& choice);
std::unique_ptr<Task> move_on_two_levels(CallContext& context, const Call& call, const Choice& choice);

}  // namespace ringcomm
