// What a rank says of the call it makes, and what follows from what all ranks say.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/call.hpp"
#include "base/error.hpp"
#include "shm/descriptor.hpp"

namespace ringcomm {

Descriptor describe(const Call& call, int me);
// But for the count and the shape. The fields that its collective does not use are left out.
Descriptor describe_kind(const Call& call);
// All ranks' descriptors are known to be equal and their balances to add up to 0, or these are they, by rank; then
// throws Error(mismatch) unless they agree. Says in the call what it could not know alone: whether the blocks of an
// all-to-all are even, and whether its guess is right. Returns false if the counts of an all-to-all disagree: then
// every rank sends its counts to the others and throws counts_mismatch().
void conclude(Call& call);
[[nodiscard]] bool conclude(Call& call, std::span<const Descriptor> all);

// An all-to-all's elements to every rank, then from every rank.
std::vector<std::uint64_t> counts_of(const Call& call);
// Error(mismatch) that names the ranks and their counts. `counts`: those of all ranks, in turn.
Error counts_mismatch(const Call& call, std::span<const Descriptor> all, std::span<const std::uint64_t> counts);

}  // namespace ringcomm
