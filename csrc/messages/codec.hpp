// What travels: a block as it is, or encoded. One per task; encode and decode must be deterministic.
#pragma once

#include <cstddef>
#include <memory>

#include "base/types.hpp"

namespace ringcomm {

class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::size_t capacity(std::size_t count) const = 0;  // most bytes encode() writes for `count` elements
  virtual std::size_t encode(const void* block, std::size_t count, void* wire) = 0;  // bytes written
  virtual void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) = 0;
  // block = wire op block, or block op wire
  virtual void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                             bool incoming_first) = 0;
};

// Floating data cast to a narrower dtype on the wire: float32 or float64 as bfloat16 or float16 (or float32).
std::unique_ptr<Codec> make_cast_codec(DType data, DType wire);

}  // namespace ringcomm
