// What a rank says of the call it makes, and what follows from what all ranks say.
#pragma once

#include <span>

#include "base/call.hpp"
#include "node/descriptor.hpp"

namespace ringcomm {

Descriptor describe(const Call& call, int me);
// But for the count and the shape. The fields that its collective does not use are left out.
Descriptor describe_kind(const Call& call);
// All ranks' descriptors are known to be equal, or these are they, by rank; then throws Error(mismatch) unless they
// agree. Says in the call what it could not know alone: whether the blocks of an all-to-all are even,
// and whether its guess is right.
void conclude(Call& call);
void conclude(Call& call, std::span<const Descriptor> all);

}  // namespace ringcomm
