// Where the buffers of a rank lie that stands in for a call on devices: in the host's memory.
#pragma once

#include <memory>

#include "base/place.hpp"

namespace ringcomm {

std::shared_ptr<Place> stand_in_place();

}  // namespace ringcomm
