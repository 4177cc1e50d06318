// Builds the task of a call: the layout of its buffers, temporary memory, and scaling.
#include "collectives/moves.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/trace.hpp"
#include "executor/staging.hpp"
#include "hierarchical/two_level.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kAll = ~std::size_t{0};  // one segment
// Limits of calls on two levels, because their segments are in staging memory: bytes of a lane's
// slice, and number of segments in flight.
constexpr std::size_t kLongestSlice = 1 << 20, kMaxInFlight = 8;

// A task with temporary memory, and an action after its last step.
class Wrapped : public Task {
 public:
  explicit Wrapped(const Transport& transport) : transport_(transport) {}
  Progress advance() override {
    const Progress progress = inner->advance();
    if (progress == Progress::done && after) after();
    return progress;
  }
  void abandon() noexcept override {
    inner->abandon();
    if (transport_.in_flight() > 0) scratch.leak();
  }
  void nap(std::chrono::nanoseconds longest) override { inner->nap(longest); }

  Staging scratch;
  std::function<void()> after;
  std::unique_ptr<Task> inner;  // destroyed first

 private:
  const Transport& transport_;
};

std::vector<Extent> consecutive(void* base, const std::vector<std::size_t>& counts, std::size_t item) {
  std::vector<Extent> extents;
  extents.reserve(counts.size());
  std::size_t first = 0;
  for (const std::size_t count : counts) {
    extents.push_back({static_cast<std::byte*>(base) + first * item, count, first});
    first += count;
  }
  return extents;
}

// Builds the task of one call, with one method for each way in which collectives use their buffers.
class Builder {
 public:
  Builder(CallContext& context, const Call& call, std::shared_ptr<const Schedule> schedule, const Choice& choice)
      : context_(context), call_(call), schedule_(std::move(schedule)), item_(size_of(call.dtype)),
        segment_(choice.cut.segment == 0 ? kAll : std::max<std::size_t>(1, choice.cut.segment / item_)),
        options_(run_options(context, call, choice.name)) {
    options_.window = choice.cut.window;
  }

  std::unique_ptr<Task> build() {
    switch (call_.collective) {
      case Collective::allreduce:
        return allreduce();
      case Collective::reduce:
      case Collective::exscan:
        return for_some();
      case Collective::scan:
        return even(call_.output, call_.input);
      case Collective::broadcast:
        return broadcast();
      case Collective::allgather:
        return allgather();
      case Collective::reducescatter:
        return reducescatter();
      case Collective::alltoall:
        return alltoall();
      case Collective::barrier:
        return run(Layout::listed({}, 1, 1), nullptr);  // the task replaces the layout by tokens
    }
    throw Error(ErrorKind::internal, "unknown collective");
  }

 private:
  std::unique_ptr<Task> run(Layout layout, const void* source) {
    return make_run_schedule(*context_.transport, schedule_, context_.peers, std::move(layout), source, context_.tags,
                             options_);
  }

  std::unique_ptr<Task> even(void* data, const void* source) {
    return run(Layout::even(data, call_.count, schedule_->blocks, item_, segment_), source == data ? nullptr : source);
  }

  // Returns temporary memory for blocks that the call has no buffer for. The task owns it.
  std::byte* scratch(Wrapped& task, std::size_t count) const {
    task.scratch.require(count * item_);
    return task.scratch.data();
  }

  std::unique_ptr<Task> allreduce() {
    options_.pre = call_.pre;
    options_.post = call_.post;
    return even(call_.output, call_.input);
  }

  std::unique_ptr<Task> broadcast() { return even(call_.output, context_.me == call_.root ? call_.input : nullptr); }

  // Builds a reduce or an exscan. In a reduce only the root has a result; in an exscan all ranks
  // but rank 0. The other ranks need temporary memory for partial sums.
  std::unique_ptr<Task> for_some() {
    auto task = std::make_unique<Wrapped>(*context_.transport);
    options_.pre = call_.pre;
    const bool here = call_.collective == Collective::reduce ? context_.me == call_.root : context_.me > 0;
    void* const work = here ? call_.output : scratch(*task, call_.count);
    if (here && !call_.post.identity())
      task->after = [call = call_] { kernels::scale(call.dtype, call.output, call.output, call.count, call.post); };
    task->inner = even(work, call_.input);
    return task;
  }

  std::unique_ptr<Task> allgather() {
    auto task = std::make_unique<Wrapped>(*context_.transport);
    std::vector<Extent> blocks = consecutive(call_.output, call_.counts, item_);
    const Extent mine = blocks[static_cast<std::size_t>(context_.me)];
    if (mine.count > 0 && call_.input != mine.data) std::memmove(mine.data, call_.input, mine.count * item_);
    task->inner = run(Layout::listed(std::move(blocks), item_, block_segment()), nullptr);
    return task;
  }

  std::unique_ptr<Task> reducescatter() {
    auto task = std::make_unique<Wrapped>(*context_.transport);
    const std::size_t count = total(call_.counts);
    std::byte* const work = scratch(*task, count);
    if (count > 0) kernels::scale(call_.dtype, work, call_.input, count, call_.pre);
    std::vector<Extent> blocks = consecutive(work, call_.counts, item_);
    const Extent mine = blocks[static_cast<std::size_t>(context_.me)];
    if (mine.count > 0)
      task->after = [call = call_, mine] { kernels::scale(call.dtype, call.output, mine.data, mine.count, call.post); };
    task->inner = run(Layout::listed(std::move(blocks), item_, block_segment()), nullptr);
    return task;
  }

  // Builds an all-to-all. Unless all blocks are equal, a rank knows only its row and column of the
  // matrix of counts. So ranks cannot agree on a number of segments, and use one.
  std::unique_ptr<Task> alltoall() {
    auto task = std::make_unique<Wrapped>(*context_.transport);
    const std::size_t sent = total(call_.counts);
    void* input = const_cast<void*>(call_.input);  // only read
    if (call_.input == call_.output && sent > 0) {
      input = scratch(*task, sent);
      std::memcpy(input, call_.input, sent * item_);
    }
    std::vector<Extent> blocks = consecutive(input, call_.counts, item_);
    for (const Extent& extent : consecutive(call_.output, call_.receive_counts, item_)) blocks.push_back(extent);
    task->inner = run(Layout::listed(std::move(blocks), item_, call_.even ? block_segment() : kAll), nullptr);
    return task;
  }

  std::size_t block_segment() const {  // elements of each block
    return segment_ == kAll ? kAll : std::max<std::size_t>(1, segment_ / static_cast<std::size_t>(schedule_->size));
  }

  CallContext& context_;
  const Call& call_;
  std::shared_ptr<const Schedule> schedule_;
  const std::size_t item_, segment_;  // bytes of an element, elements of a segment
  RunOptions options_;
};

}  // namespace

RunOptions run_options(CallContext& context, const Call& call, std::string_view way) {
  RunOptions options;
  options.dtype = call.dtype;
  options.op = call.op;
  options.codec = make_codec(call.wire, call.dtype, call.feedback);
  if (options.codec) {
    options.encoding = &context.account.encoding;
    if (context.account.timed() || trace().enabled())
      options.codec = make_watched_codec(std::move(options.codec), options.encoding->ns);
  }
  options.tensor = call.tensor;
  options.call_number = static_cast<std::uint32_t>(context.tags.drawn());
  options.canonicalizes = encoding_of(call.wire, call.dtype).rounds;
  if (options.codec && call.feedback) call.feedback->begin(call.tensor, std::hash<std::string_view>()(way));
  return options;
}

void finish_logical_op(const Call& call, int rank, int size) {
  if (!is_logical(call.op) || !computes(call.collective)) return;
  const bool alone = call.collective == Collective::scan     ? rank == 0
                     : call.collective == Collective::exscan ? rank == 1
                                                             : size == 1;
  if (!alone || call.place) return;
  void* const data = call.output;
  kernels::reduce(call.dtype, Op::lor, data, data, data, call.elements());
}

// Moves the data of a group of one rank. Every op then only scales.
std::unique_ptr<Task> move_alone(const Call& call) {
  const std::size_t count = call.elements();
  if (count > 0 && computes(call.collective) && !(call.pre.identity() && call.post.identity())) {
    kernels::reduce_many(call.dtype, Op::sum, {&call.output, 1}, {&call.input, 1}, count, call.pre, call.post);
  } else if (count > 0 && call.input != call.output) {
    std::memmove(call.output, call.input, count * size_of(call.dtype));
  }
  return std::make_unique<Finished>();
}

std::unique_ptr<Task> move_by_schedule(CallContext& context, const Call& call, std::shared_ptr<const Schedule> schedule,
                                       const Choice& choice) {
  return Builder(context, call, std::move(schedule), choice).build();
}

std::unique_ptr<Task> move_on_two_levels(CallContext& context, const Call& call, const Choice& choice) {
  const Hosts& hosts = context.hosts;
  LaneRun lane{*context.transport, context.tags, context.schedules, *choice.algorithm, hosts, 0, {}, {}};
  lane.root_host = hosts.host_of(choice.algorithm->any_root ? choice.root : call.root);
  lane.local_root = hosts.local_rank(call.root);
  lane.segment_bytes = std::min(choice.cut.segment, kLongestSlice) * static_cast<std::size_t>(hosts.lanes());
  const int local = context.node->rank();
  if (local < hosts.lanes()) {
    for (const int rank : hosts.lane(local)) lane.peers.push_back(context.peers[static_cast<std::size_t>(rank)]);
  }
  lane.options = run_options(context, call, choice.name);
  // other collectives are scaled in shared memory
  if (call.collective == Collective::allreduce || call.collective == Collective::reduce) lane.options.post = call.post;
  lane.options.window = std::min(choice.cut.window, kMaxInFlight);
  context.epochs->open_call();
  return make_two_level(*context.epochs, call, std::move(lane));
}

}  // namespace ringcomm
