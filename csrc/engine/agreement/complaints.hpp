// Texts of errors that all ranks get: operations that are ready everywhere and may not run, or that can never be.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "engine/agreement/rows.hpp"

namespace ringcomm {

// Nothing: it runs. `ranks[i]` is what rank i of the set is called in texts.
std::optional<Error> complaint(const Row& row, std::span<const int> ranks);

// Every rank waits, and none for an operation that all ranks have submitted. `joined`: as called in texts.
std::string never_meet(std::span<Row* const> rows, std::span<const int> ranks, const std::vector<int>& joined);

}  // namespace ringcomm
