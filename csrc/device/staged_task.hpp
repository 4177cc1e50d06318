// A call whose buffers are a device's, by way of the host: segments of the array are copied to its memory, worked on
// there by a host's call, and copied back, all three at a time. So bytes cross the device's link once each way.
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
