// Implements the task that runs a schedule: a sliding window of instances over the segments.
#include "executor/run_schedule.hpp"

#include <algorithm>
#include <deque>

#include "base/error.hpp"
#include "executor/instance.hpp"

namespace ringcomm {
namespace {

void require(bool holds, const Schedule& schedule, const char* what) {
  if (!holds) throw Error(ErrorKind::internal, "algorithm '" + schedule.algorithm + "' cannot run: " + what);
}

// A task that starts segments in order. The segments in flight are within a window that begins at
// the oldest unfinished segment. The window is no longer than the number of tags, so tags in flight
// are distinct.
class RunSchedule final : public Task {
 public:
  RunSchedule(RunContext context, TagStream& stream, std::vector<std::byte> tokens)
      : tokens_(std::move(tokens)), context_(std::move(context)) {
    const std::size_t segments = context_.layout.segments();
    tags_.reserve(segments);
    for (std::size_t s = 0; s < segments; ++s) tags_.push_back(stream.next());
    const auto distinct = static_cast<std::size_t>(std::max(1, stream.count()));
    const std::size_t window = std::min({std::max<std::size_t>(1, context_.options.window), distinct, segments});
    for (std::size_t i = 0; i < window; ++i) instances_.emplace_back(context_, static_cast<int>(i));
  }
  ~RunSchedule() override { RunSchedule::abandon(); }

  // Advances the instances, and polls the transport, so that no other thread needs to.
  Progress advance() override {
    if (abandoned_) throw Error(ErrorKind::internal, "this task was abandoned");
    bool moved = context_.transport.poll();
    const std::size_t* const released = context_.options.released;
    if (opened_ < tags_.size() && opened_ - oldest_ < instances_.size() && (!released || opened_ < *released)) {
      instance(opened_).open(opened_, tags_[opened_]);
      ++opened_;
      moved = true;
    }
    for (std::size_t s = oldest_; s < opened_; ++s) moved |= instance(s).advance();
    while (oldest_ < opened_ && instance(oldest_).finished()) ++oldest_;
    if (context_.options.finished) *context_.options.finished = oldest_;
    if (oldest_ == tags_.size()) return Progress::done;
    return moved ? Progress::moved : Progress::blocked;
  }

  void abandon() noexcept override {
    abandoned_ = oldest_ < tags_.size();
    for (Instance& instance : instances_) instance.abandon();
  }

 private:
  Instance& instance(std::size_t segment) { return instances_[segment % instances_.size()]; }

  std::vector<std::byte> tokens_;  // a barrier's blocks
  const RunContext context_;
  std::vector<int> tags_;  // by segment
  std::deque<Instance> instances_;
  std::size_t oldest_ = 0;  // the first unfinished segment
  std::size_t opened_ = 0;  // segments opened so far
  bool abandoned_ = false;
};

// Replaces the blocks of a barrier by tokens of one byte, so that none of its messages is empty.
void use_tokens(RunContext& context, std::vector<std::byte>& tokens) {
  tokens.resize(static_cast<std::size_t>(context.schedule->blocks));
  std::vector<Extent> blocks;
  for (std::byte& token : tokens) blocks.push_back({&token, 1});
  context.layout = Layout::listed(std::move(blocks), 1, 1);
  context.source = nullptr;
  const RunOptions given = context.options;
  context.options = {};
  context.options.op = Op::max;
  context.options.longest_message = given.longest_message;
}

}  // namespace

std::unique_ptr<Task> make_run_schedule(Transport& transport, std::shared_ptr<const Schedule> schedule,
                                        std::span<const int> peers, Layout layout, const void* source, TagStream& tags,
                                        RunOptions options) {
  const Schedule& plan = *schedule;
  options.longest_message = std::clamp<std::size_t>(options.longest_message, 1, kLongestMessage);
  RunContext context{transport,
                     std::move(schedule),
                     {peers.begin(), peers.end()},
                     std::move(layout),
                     static_cast<const std::byte*>(source),
                     std::move(options),
                     {},
                     {}};
  std::vector<std::byte> tokens;
  if (plan.collective == Collective::barrier) use_tokens(context, tokens);
  const RunOptions& chosen = context.options;
  require(context.peers.size() == static_cast<std::size_t>(plan.size), plan, "it is for a different number of ranks");
  require(context.layout.blocks() == static_cast<std::size_t>(plan.blocks), plan,
          "the layout has a different number of blocks");
  require(!chosen.combine || (plan.blocks == 1 && context.layout.segments() == 1), plan,
          "it divides buffers, but the op needs complete buffers");
  require(context.layout.even() || (!context.source && chosen.pre.identity() && chosen.post.identity()), plan,
          "listed blocks support neither a separate input nor scaling");
  if (context.layout.even() && context.source == context.layout.segment(0).data) context.source = nullptr;
  context.program = Program(plan, context.fills());
  if (chosen.codec) {
    context.encodings = encodings_of(plan, context.program);
    if (plan.size == 1 || !chosen.canonicalizes || !has_identical_results(plan.collective))
      context.encodings.noncanonical.clear();
  }
  require(size_of(chosen.dtype) == context.layout.item_size() ||
              !(chosen.codec || context.program.computes(0, context.program.writes.size())),
          plan, "the element size of the layout is not that of the dtype");
  return std::make_unique<RunSchedule>(std::move(context), tags, std::move(tokens));
}

}  // namespace ringcomm
