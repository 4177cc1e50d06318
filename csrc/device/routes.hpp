// Creates the routes for calls on devices, besides the one through the host. Each file describes
// its route.
#pragma once

#include <cstdint>
#include <memory>

#include "device/side.hpp"

namespace ringcomm {

std::int32_t nccl_version();  // 0: not available
std::unique_ptr<DeviceRoute> make_nccl_route(Device& device);
std::unique_ptr<DeviceRoute> make_ipc_route(Device& device, std::size_t least);  // for arrays of at least `least` bytes
std::unique_ptr<DeviceRoute> make_one_shot_route(Device& device, int size);      // for small calls, in addition to ipc
std::unique_ptr<DeviceRoute> make_levels_route(Device& device,
                                               std::size_t least);  // for calls of at least `least` bytes
std::unique_ptr<DeviceRoute> make_aware_route(Device& device);

}  // namespace ringcomm
