// From a call to the task that moves its data, once every rank is known to want the same.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/call.hpp"
#include "base/task.hpp"
#include "call/choose.hpp"
#include "messages/run_schedule.hpp"

namespace ringcomm {

struct BodyContext {
  Transport& transport;
  std::span<const int> peers;
  int me;
  TagStream& tags;
  Cut cut;
};

RunOptions run_options(const Call& call);  // dtype, op and what elements travel as
std::size_t bytes_of(const Call& call);    // of the whole buffer: the size that algorithms are chosen by
// One rank: copies and scales.
std::unique_ptr<Task> make_local_body(const Call& call);
// Over messages, by a schedule.
std::unique_ptr<Task> make_schedule_body(const BodyContext& context, const Call& call,
                                         std::shared_ptr<const Schedule> schedule);

}  // namespace ringcomm
