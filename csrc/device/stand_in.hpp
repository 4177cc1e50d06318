// Where the buffers of a rank lie that stands in for a call on devices: in the host's memory.
#pragma once

#include <memory>

#include "base/memory_location.hpp"

namespace ringcomm {

std::shared_ptr<MemoryLocation> placeholder_location();

}  // namespace ringcomm
