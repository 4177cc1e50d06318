// Between hosts in levels: the ranks of a host share a call out among themselves on their devices, each carries its
// slice to the other hosts, and they bring the slices together again. A device's link to the host carries a slice
// there and back, not the array (NCCL and Horovod's NCCLHierarchicalAllreduce do so as well).
#pragma once

#include <memory>

#include "device/side.hpp"

namespace ringcomm {

// For calls of so many bytes at least.
std::unique_ptr<Route> make_levels_route(Device& device, std::size_t least);

}  // namespace ringcomm
