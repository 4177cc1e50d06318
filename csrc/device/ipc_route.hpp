// Ranks of one host that map each other's device memory: each works on its share of the array, and reads and writes
// everybody's with kernels of its own. Ranks meet on the host, never by a kernel that waits for another process's,
// which may not run before this one ends.
//
//   stream   ready ──┐                    wait for all ready, work, done ──┐            wait for all done
//   host             └ tell: where, ready ┘                                └ meet: done ┘
#pragma once

#include <memory>

#include "device/side.hpp"

namespace ringcomm {

std::unique_ptr<Route> make_ipc_route(Device& device);

}  // namespace ringcomm
