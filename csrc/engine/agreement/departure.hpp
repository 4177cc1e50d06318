// How this rank leaves, a turn of the worker at a time. Why this is safe: engine/engine.cpp.
#pragma once

#include <cstdint>

#include "engine/set_table.hpp"
#include "engine/worker/services.hpp"

namespace ringcomm {

class Departure {
 public:
  Departure(Context& context, Services& services) : context_(context), services_(services) {}
  // One turn; `moved_data`: something has in this turn. True if it got further.
  bool turn(const Sets& sets, bool moved_data);
  bool over() const { return phase_ == Phase::gone; }

 private:
  enum class Phase : std::uint8_t { asked, withdrawing, saying, gone };
  void say_goodbye(const Sets& sets);

  Context& context_;
  Services& services_;
  Phase phase_ = Phase::asked;
  std::int64_t deadline_ns_ = 0;  // of the phase
};

}  // namespace ringcomm
