// Defines the interface of encoders and decoders. The executor encodes the blocks that a schedule
// sends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.hpp"

namespace ringcomm {

// Identifies a block for an encoder, which uses the key to select residuals and to seed random
// draws.
struct CodecKey {
  std::uint64_t tensor = 0;  // index in the Feedback: number of a plan's bucket
  std::size_t first = 0;     // index in the tensor
  std::uint32_t call = 0;    // equal on all ranks, different in each call
  int rank = 0;
};

// Encodes and decodes blocks. A rank forwards the bytes that it encoded or received; it does not
// encode a decoded block again. So the encoding of a decoded block may differ from the original
// encoding.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::size_t capacity(std::size_t count) const = 0;  // most bytes encode() writes for `count` elements
  // Returns the number of bytes written. Replaces the block by its decoded encoding.
  virtual std::size_t encode(const CodecKey& key, void* block, std::size_t count, void* wire) = 0;
  // Throws Error(transport) for invalid bytes. Writes nothing but the block.
  virtual void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) = 0;
  // Computes block = wire op block if `incoming_first`, else block = block op wire.
  virtual void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                             bool incoming_first) = 0;
};

}  // namespace ringcomm
