// Runs an all-gather with one output per rank on routes that can gather only into a single array.
#pragma once

#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"

namespace ringcomm {

class Channel;

std::unique_ptr<Task> make_gathered_per_rank(Channel& channel, Call&& call);

}  // namespace ringcomm
