// Runs a call on device buffers through the host. Segments of the array are copied to host memory,
// processed by a host call, and copied back, as a pipeline of three stages. So bytes cross the
// device's link once in each direction.
//
//   from the device  | 0 | 1 | 2 | 3 |
//   host's calls         | 0 | 1 | 2 | 3 |
//   to the device            | 0 | 1 | 2 | 3 |
#pragma once

#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"
#include "device/copies.hpp"

namespace ringcomm {

std::unique_ptr<Task> make_staged(Channel& channel, Call call, std::unique_ptr<Copies> copies, bool host_output);

}  // namespace ringcomm
