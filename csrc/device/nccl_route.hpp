// NCCL, where every rank has a GPU of its own; found when it is asked for.
#pragma once

#include <cstdint>
#include <memory>

#include "device/side.hpp"

namespace ringcomm {

std::int32_t nccl_version();  // 0: there is none
std::unique_ptr<Route> make_nccl_route(Device& device);

}  // namespace ringcomm
