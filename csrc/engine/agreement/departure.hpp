// Lets this rank leave the job, in steps that are turns of the worker. engine/engine.cpp explains
// why this is safe.
#pragma once

#include <cstdint>

#include "engine/set_table.hpp"
#include "engine/worker/services.hpp"

namespace ringcomm {

class Departure {
 public:
  Departure(Context& context, Services& services) : context_(context), services_(services) {}
  // Runs one step. `moved_data`: data moved in this turn. Returns true on progress.
  bool turn(const Sets& sets, bool moved_data);
  bool over() const { return phase_ == Phase::left; }

 private:
  enum class Phase : std::uint8_t { requested, withdrawing, sending_goodbyes, left };
  void send_goodbyes(const Sets& sets);

  Context& context_;
  Services& services_;
  Phase phase_ = Phase::requested;
  std::int64_t deadline_ns_ = 0;  // end of the phase
};

}  // namespace ringcomm
