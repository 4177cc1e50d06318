// Defines the factor by which a call multiplies its data.
#pragma once

#include <cstdint>

namespace ringcomm::kernels {

// The map x -> x * factor / divisor; kernels.hpp defines its rounding. divisor is at least 1.
struct Scale {
  double factor = 1.0;
  std::int64_t divisor = 1;
  bool identity() const { return factor == 1.0 && divisor == 1; }
};

}  // namespace ringcomm::kernels
