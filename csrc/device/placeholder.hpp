// Declares the memory location of a placeholder, the contribution of a joined rank to a call on
// devices. Its buffers are in host memory.
#pragma once

#include <memory>

#include "base/memory_location.hpp"

namespace ringcomm {

std::shared_ptr<MemoryLocation> placeholder_location();

}  // namespace ringcomm
