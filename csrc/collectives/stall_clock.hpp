// Says on stderr when a call has not moved for long.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/context.hpp"

namespace ringcomm {

class StallClock {
 public:
  // `kind`: what people call such calls. Both must live on.
  StallClock(const CallContext& context, const char* kind);
  void moved() { since_ = 0; }
  void blocked(std::int64_t now, std::string_view call);  // still; `now` in now_ns()'s time

 private:
  const CallContext& context_;
  const char* const kind_;
  const std::int64_t every_;
  std::int64_t since_ = 0, warned_ = 0;
};

}  // namespace ringcomm
