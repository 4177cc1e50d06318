// Copies elements between two strided layouts: from non-contiguous arrays to contiguous ones, and
// back.
#pragma once

#include "device/kernels/memory.hpp"
#include "device/kernels/parameters.hpp"

namespace ringcomm::gpu {

template <class Unit>
RC_DEVICE void move_units(const StridedParameters& parameters, Place place) {
  const u64 source = address(parameters.source), destination = address(parameters.destination);
  RC_LOOP for (u64 at = place.index(); at < parameters.count; at += place.total()) {
    u64 from = source, to = destination, rest = at;
    RC_LOOP for (u32 d = parameters.dimensions; d > 0; --d) {
      const u64 length = parameters.shape[d - 1], index = rest % length;
      rest /= length;
      from += index * static_cast<u64>(parameters.source_strides[d - 1]);  // modulo 2^64: strides of either sign
      to += index * static_cast<u64>(parameters.destination_strides[d - 1]);
    }
    Unit unit;
    load_unit(unit, from);
    store_unit(to, unit);
  }
}

RC_DEVICE void strided(const StridedParameters& parameters, Place place) {
  if (parameters.unit == 1) return move_units<u8>(parameters, place);
  if (parameters.unit == 2) return move_units<u16>(parameters, place);
  if (parameters.unit == 4) return move_units<u32>(parameters, place);
  move_units<u64>(parameters, place);
}

}  // namespace ringcomm::gpu
