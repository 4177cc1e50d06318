// Implements StallReport, which prints a line on stderr when this rank has waited for long.
#include "base/caller_wait.hpp"

#include <algorithm>
#include <cstdio>

namespace ringcomm {

StallReport::StallReport(int rank, double every_seconds)
    : rank_(rank), every_(static_cast<std::int64_t>(std::min(every_seconds, 9e9) * 1e9)) {}

void StallReport::print(const Text& text, std::int64_t seconds) const {
  std::fprintf(stderr, "ringcomm: rank %d has been waiting %lld s in %s%s%s\n", rank_, static_cast<long long>(seconds),
               text.what.c_str(), text.why.empty() ? "" : "; ", text.why.c_str());
}

}  // namespace ringcomm
