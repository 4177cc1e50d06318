// Records a segment's phases on the timeline: rounds in which this rank reduces, and rounds in
// which it only sends and receives.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "base/trace.hpp"
#include "executor/run_context.hpp"

namespace ringcomm {

class PhaseTrace {
 public:
  PhaseTrace(const RunContext& context, int lane) : context_(context), lane_(lane) {}
  void begin() { begun_ns_ = trace().enabled() ? now_ns() : 0; }
  // Called when the round before `round` has ended. Records the current phase if `round` begins
  // another phase.
  void ended_before(std::size_t round, std::size_t segment) {
    if (begun_ns_ == 0) return;
    const bool reducing = reduces(round - 1);
    if (round < context_.program.rounds.size() && reduces(round) == reducing) return;
    const std::string detail = concat("segment ", segment + 1, " of ", context_.layout.segments());
    const Layout& layout = context_.layout;
    const std::uint64_t bytes = layout.even() ? layout.segment(segment).count * layout.item_size() : 0;
    trace_lane(reducing ? "share-reduce" : "share-only", detail, begun_ns_, bytes, lane_);
    begun_ns_ = now_ns();
  }

 private:
  bool reduces(std::size_t round) const {
    return context_.program.computes(context_.round(round).first_write, context_.round(round).end_write);
  }

  const RunContext& context_;
  const int lane_;             // number of the instance in its task
  std::int64_t begun_ns_ = 0;  // 0: not traced
};

}  // namespace ringcomm
