// The ways that calls on devices can go, beside that through the host; each file says how.
#pragma once

#include <cstdint>
#include <memory>

#include "device/side.hpp"

namespace ringcomm {

std::int32_t nccl_version();  // 0: there is none
std::unique_ptr<DeviceRoute> make_nccl_route(Device& device);
std::unique_ptr<DeviceRoute> make_ipc_route(Device& device, std::size_t least);  // for arrays of so many bytes at least
std::unique_ptr<DeviceRoute> make_one_shot_route(Device& device, int size);      // for small calls, beside it
std::unique_ptr<DeviceRoute> make_levels_route(Device& device,
                                               std::size_t least);  // for calls of so many bytes at least
std::unique_ptr<DeviceRoute> make_aware_route(Device& device);

}  // namespace ringcomm
