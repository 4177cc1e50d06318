// Copies an input that stores to the result would overwrite before it is read.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "base/call.hpp"

namespace ringcomm {

inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  return a && b && a_bytes > 0 && b_bytes > 0 && first < second + b_bytes && second < first + a_bytes;
}

// Returns whether stores to a rank's result may overwrite input that is still to be read, so that
// the input needs a copy. A reduce-scatter's result may replace this rank's block, because
// each element is read before it is written.
inline bool overwrites_input(const Call& call, int rank) {
  const std::size_t item = size_of(call.dtype), given = total(call.counts) * item;
  if (call.collective == Collective::alltoall)
    return overlap(call.input, given, call.output, total(call.receive_counts) * item);
  if (call.collective != Collective::reducescatter) return false;
  const std::size_t mine = call.counts[static_cast<std::size_t>(rank)] * item;
  return overlap(call.input, given, call.output, mine) &&
         call.output != at(call.input, start_of(call.counts, rank) * item);
}

// The input, or a copy of it if it would be overwritten.
class KeptInput {
 public:
  KeptInput(const Call& call, int rank) : input_(call.input) {
    if (!overwrites_input(call, rank)) return;
    const std::size_t nbytes = total(call.counts) * size_of(call.dtype);
    copy_ = std::make_unique_for_overwrite<std::byte[]>(nbytes);
    std::memcpy(copy_.get(), call.input, nbytes);
    input_ = copy_.get();
  }
  const std::byte* from(std::size_t byte) const { return at(input_, byte); }

 private:
  const void* input_;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace ringcomm
