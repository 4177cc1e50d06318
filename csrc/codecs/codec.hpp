// What encodes the blocks of one run of a schedule.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace ringcomm {

// Which elements an encoder has before it, and in which call: what it keeps a residual by, and draws by.
struct CodecKey {
  std::uint64_t tensor = 0;  // of those that a Feedback is for: a plan's bucket
  std::size_t first = 0;     // element of the tensor
  std::uint32_t call = 0;    // equal on all ranks, another one in each call
  int rank = 0;
};

// What a rank has encoded, or received, it sends on as the same bytes: no format needs to make the same of what it
// decodes to.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::size_t capacity(std::size_t count) const = 0;  // most bytes encode() writes for `count` elements
  // Returns how many bytes it has written. The block then holds what they decode to.
  virtual std::size_t encode(const CodecKey& key, void* block, std::size_t count, void* wire) = 0;
  // Throws Error(transport) for bytes that no encoder has made, and writes nothing but the block.
  virtual void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) = 0;
  // block = wire op block, or block op wire
  virtual void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                             bool incoming_first) = 0;
};

}  // namespace ringcomm
