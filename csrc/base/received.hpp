// The result of a collective, if the ranks must exchange counts before a rank knows its size.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace ringcomm {

// `output` is 64-byte aligned memory of the core. `counts` has a number of rows (dimension 0) for
// each rank. They are rows of the rank's part (allgather), rows received from the rank (alltoall),
// or rows of the rank's result (reducescatter).
struct Received {
  std::shared_ptr<std::byte[]> output;
  std::size_t output_bytes = 0;
  std::vector<std::size_t> counts;
};

}  // namespace ringcomm
