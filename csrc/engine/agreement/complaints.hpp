// Error messages that all ranks get, for operations that are ready on all ranks but cannot run, and
// for operations that can never become ready. The coordinator calls these functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "engine/agreement/rows.hpp"

namespace ringcomm {

// Returns the error of an operation that cannot run; empty if it can. `ranks[i]`: number of rank i
// of the set in messages to users.
std::optional<Error> complaint(const Row& row, std::span<const int> ranks);

// Returns the message for a deadlock: every rank waits, but no operation was submitted by all
// ranks. `joined`: ranks as numbered in messages to users.
std::string deadlock_text(std::span<Row* const> rows, std::span<const int> ranks, const std::vector<int>& joined);

}  // namespace ringcomm
