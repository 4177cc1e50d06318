// Runs a schedule on one segment. An instance can be opened again for a later segment, and keeps
// its memory. run_schedule.cpp keeps several instances in flight.
#pragma once

#include <array>

#include "executor/phase_trace.hpp"
#include "executor/round_messages.hpp"

namespace ringcomm {

class Instance {
 public:
  Instance(const RunContext& context, int lane)  // `lane`: number of this instance in its task
      : context_(context), blocks_(context), packing_(context, blocks_),
        messages_{RoundMessages(context, packing_), RoundMessages(context, packing_)}, trace_(context, lane) {}
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  void open(std::size_t segment, int tag);
  bool advance();  // true if there was progress
  bool finished() const { return round_ == context_.program.rounds.size(); }
  void abandon() noexcept;

 private:
  RoundMessages& messages(std::size_t round) { return messages_[round % 2]; }
  void fill();    // copies and scales the input
  void finish();  // canonicalizes and scales the result
  void begin_round();
  bool run_writes(const RoundMessages& messages);  // in order, up to the first whose message is missing
  void apply(const Write& write, Bytes arrived);
  void reduce(const Write& write, const Extent& block, const std::byte* incoming) const;

  const RunContext& context_;
  std::size_t segment_ = 0;
  int tag_ = 0;
  std::size_t round_ = 0;
  std::uint32_t write_ = 0;  // the next write to apply
  SegmentBlocks blocks_;
  Packing packing_;
  Staging decoded_;
  std::array<RoundMessages, 2> messages_;
  PhaseTrace trace_;
};

}  // namespace ringcomm
