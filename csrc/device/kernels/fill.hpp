// Fills an array of any dtype with one value.
#pragma once

#include "device/kernels/memory.hpp"
#include "device/kernels/parameters.hpp"

namespace ringcomm::gpu {

RC_DEVICE void fill(const FillParameters& parameters, Place place) {
  const u64 start = address(parameters.destination);
  const Cut cut = Cut::at(start, 1, kPackBytes, parameters.nbytes);
  u8 pack[kPackBytes];
  RC_UNROLL for (u32 b = 0; b < kPackBytes; ++b) pack[b] = parameters.pattern[(cut.head + b) % kPackBytes];
  RC_LOOP for (u64 at = place.index(); at < cut.packs; at += place.total())
      store_pack(start + cut.head + at * kPackBytes, pack);
  const u64 inside = cut.packs * kPackBytes, rest = parameters.nbytes - inside;
  RC_LOOP for (u64 at = place.index(); at < rest; at += place.total()) {
    const u64 byte = at < cut.head ? at : at + inside;
    store_unit(start + byte, parameters.pattern[byte % kPackBytes]);
  }
}

}  // namespace ringcomm::gpu
