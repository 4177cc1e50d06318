// Declares the memory location of a placeholder in a call on devices: its buffers are in host
// memory.
#pragma once

#include <memory>

#include "base/memory_location.hpp"

namespace ringcomm {

std::shared_ptr<MemoryLocation> placeholder_location();

}  // namespace ringcomm
