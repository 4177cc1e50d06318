// What is wrong with an operation that is ready everywhere.
#pragma once

#include <optional>
#include <span>

#include "base/error.hpp"
#include "engine/rows.hpp"

namespace ringcomm {

// Nothing: it runs. `ranks[i]` is what rank i of the set is called in texts.
std::optional<Error> complaint(const Row& row, std::span<const int> ranks);

}  // namespace ringcomm
