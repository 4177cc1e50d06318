// Creates the descriptor of a call, and draws the conclusions from all ranks' descriptors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/call.hpp"
#include "base/error.hpp"
#include "shm/descriptor.hpp"

namespace ringcomm {

Descriptor describe(const Call& call, int me);
// Returns the descriptor without count and shape. Fields without use in the collective stay empty.
Descriptor describe_kind(const Call& call);
// Completes the call with facts that need all descriptors: whether the blocks of an all-to-all are
// even, and whether the speculation is right.
// The first form is for equal descriptors with balances that add up to 0. The second form takes all
// descriptors, by rank, and throws Error(mismatch) if they disagree.
// The second form returns false if the counts of an all-to-all disagree. Then every rank must send
// its counts to all ranks and throw counts_mismatch().
void conclude(Call& call);
[[nodiscard]] bool conclude(Call& call, std::span<const Descriptor> all);

// Returns the elements that an all-to-all sends to each rank, then those received from each rank.
std::vector<std::uint64_t> counts_of(const Call& call);
// Makes an Error(mismatch) that names ranks and counts. `counts` holds all counts, in rank order.
Error counts_mismatch(const Call& call, std::span<const Descriptor> all, std::span<const std::uint64_t> counts);

}  // namespace ringcomm
