// From a call to the task that moves its data, once every rank is known to want the same.
#pragma once

#include <memory>
#include <span>

#include "base/call.hpp"
#include "base/task.hpp"
#include "messages/run_schedule.hpp"
#include "schedule/price.hpp"
#include "schedule/schedule_cache.hpp"

namespace ringcomm {

// By messages among the ranks of a group.
struct MoveContext {
  Transport& transport;
  std::span<const int> peers;
  int me;
  TagStream& tags;
  ScheduleCache& schedules;
};

RunOptions run_options(const Call& call);            // dtype, op and what elements travel as
std::size_t bytes_of(const Call& call);              // of the whole buffer: the size that algorithms are chosen by
std::unique_ptr<Task> move_alone(const Call& call);  // one rank: copies and scales
std::unique_ptr<Task> move_by_schedule(const MoveContext& context, const Call& call,
                                       std::shared_ptr<const Schedule> schedule, const Cut& cut);

}  // namespace ringcomm
