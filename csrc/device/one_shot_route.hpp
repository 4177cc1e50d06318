// Small calls of a host's ranks: each writes what it gives to everybody's memory, which is mapped once and for all, and
// makes the whole result by itself of what all have written, so that ranks meet once. (The one-shot all-reduce of
// TensorRT-LLM and vLLM, whose ranks wait on the device; here their hosts do, and streams by events.)
#pragma once

#include <memory>

#include "device/side.hpp"

namespace ringcomm {

std::unique_ptr<Route> make_one_shot_route(Device& device, int size);

}  // namespace ringcomm
