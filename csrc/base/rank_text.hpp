// Formats lists of ranks for error messages: "rank 3", "ranks 0-2, 5".
#pragma once

#include <string>
#include <vector>

namespace ringcomm {

std::string rank_text(std::vector<int> ranks);

}  // namespace ringcomm
