#include "collectives/stall_clock.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/rank_text.hpp"

namespace ringcomm {

StallClock::StallClock(const CallContext& context, const char* kind)
    : context_(context), kind_(kind),
      every_(static_cast<std::int64_t>(std::min(context.config.stall_warn_seconds, 9e9) * 1e9)) {}

void StallClock::blocked(std::int64_t now, std::string_view call) {
  if (since_ == 0) since_ = warned_ = now;
  if (every_ <= 0 || now - warned_ < every_) return;
  warned_ = now;
  const std::vector<int> behind = context_.epochs ? context_.epochs->behind() : std::vector<int>{};
  const std::string who = behind.empty()
                              ? "not all ranks have made this call"
                              : rank_text(behind) + (behind.size() == 1 ? " has" : " have") + " not come as far";
  std::fprintf(stderr, "ringcomm: rank %d waits in '%.*s', %s, since %lld s: %s\n", context_.me,
               static_cast<int>(call.size()), call.data(), kind_,
               static_cast<long long>((now - since_) / 1'000'000'000), who.c_str());
}

}  // namespace ringcomm
