// A segment's phases on the timeline: rounds in which this rank reduces, and rounds in which it only sends and
// receives.
#include <string>

#include "base/clock.hpp"
#include "base/trace.hpp"
#include "messages/instance.hpp"

namespace ringcomm {

void Instance::trace_begin() { phase_begun_ns_ = trace().enabled() ? now_ns() : 0; }

bool Instance::reduces(std::size_t round) const {
  return context_.program.computes(program(round).first_write, program(round).end_write);
}

void Instance::trace_round() {
  if (phase_begun_ns_ == 0) return;
  const bool reducing = reduces(round_ - 1);
  if (!finished() && reduces(round_) == reducing) return;
  const std::string detail =
      "segment " + std::to_string(segment_ + 1) + " of " + std::to_string(context_.layout.segments());
  const std::uint64_t bytes = context_.layout.even() ? bytes_of(context_.layout.segment(segment_)) : 0;
  trace_lane(reducing ? "share-reduce" : "share-only", detail, phase_begun_ns_, bytes, lane_);
  phase_begun_ns_ = now_ns();
}

}  // namespace ringcomm
