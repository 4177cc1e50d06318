// An all-gather whose parts go to several places, where only one array of all of them can be gathered.
#pragma once

#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"

namespace ringcomm {

class Channel;

std::unique_ptr<Task> make_gathered_per_rank(Channel& channel, Call&& call);

}  // namespace ringcomm
