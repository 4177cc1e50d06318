// Implements the tasks of a bucket: packed into one buffer, or reduced in scattered memory.
#include "engine/plans/bucket.hpp"

#include <utility>

#include "base/clock.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

namespace {

using Counts = std::vector<std::size_t>;

Counts times(const Counts& rows, std::size_t row) {
  Counts result(rows);
  for (std::size_t& n : result) n *= row;
  return result;
}

// Scales the input before the call, in which a joined rank's identities must not be scaled.
void scale_first(Call& call, ArenaRoom& buffer) {
  const std::size_t count = call.elements();
  std::byte* const scaled = buffer.at_least(count * size_of(call.dtype));
  kernels::scale(call.dtype, scaled, call.input, count, std::exchange(call.pre, {}));
  call.input = scaled;
}

// Gives a joined rank, which has no rows, identities or memory for a result that is not read.
void fill_identity(Call& call, ArenaRoom& buffer, int me) {
  const std::size_t count = call.collective == Collective::alltoall ? total(call.receive_counts) : call.elements();
  const std::size_t item = size_of(call.dtype);
  std::byte* const memory = buffer.at_least(count * item);
  call.pre = {};
  call.input = call.output = memory;
  if (!computes(call.collective)) return;
  kernels::fill_identity(call.dtype, call.op, memory, count);
  if (call.collective == Collective::reducescatter)  // the result is stored where this rank's block is
    call.output = memory + start_of(call.counts, me) * item;
}

// Fills in counts that only agreement decides, and allocates a result of that size.
void fill_rows(Call& call, OperationState& pending, const std::vector<std::uint64_t>& sizes, const Channel& channel) {
  const NamedRequest& request = pending.request;
  const auto size = static_cast<std::size_t>(channel.size());
  Counts& rows = pending.counts;  // rows of each rank in the result
  if (call.collective == Collective::reducescatter) {
    for (std::size_t i = 0; i < size; ++i) rows.push_back(split(request.rows, size, i).count);
  } else if (sizes.size() == 1) {
    rows.assign(size, sizes[0]);
  } else {
    rows.assign(sizes.begin(), sizes.end());
  }
  call.counts = times(rows, request.row);
  std::size_t elements = total(call.counts);
  if (call.collective == Collective::reducescatter) elements = call.counts[static_cast<std::size_t>(channel.rank())];
  if (call.collective == Collective::alltoall) {
    call.even = sizes.size() == 1;
    call.receive_counts = std::exchange(
        call.counts, times(request.splits.empty() ? Counts(size, request.rows / size) : request.splits, request.row));
  }
  if (call.output || pending.is_placeholder) return;
  pending.output_bytes = elements * size_of(call.dtype);
  pending.output = aligned_bytes(pending.output_bytes);
  call.output = pending.output.get();
}

// Returns the call of one operation. `joined`: a rank of the set has joined.
Call call_of(const Agreed& part, const Channel& channel, ArenaRoom& buffer, bool joined) {
  OperationState& pending = *part.pending;
  Call call = pending.request.call;
  call.agreed = true;
  call.has_placeholders = joined;
  if (has_rows_per_rank(call.collective) || call.collective == Collective::reducescatter)
    fill_rows(call, pending, part.sizes, channel);
  if (pending.is_placeholder) {
    fill_identity(call, buffer, channel.rank());
  } else if (joined && !call.place && computes(call.collective) && !call.pre.identity()) {
    scale_first(call, buffer);
  }
  return call;
}

std::shared_ptr<MemoryLocation> place_of(const std::vector<Agreed>& parts) {
  std::vector<std::shared_ptr<MemoryLocation>> places;
  places.reserve(parts.size());
  for (const Agreed& part : parts) places.push_back(part.pending->request.call.place);
  return places[0]->together(places);
}

// Returns the bucket as one call, without the address of its data.
Call fused_call(const std::vector<Agreed>& parts) {
  Call fused = parts[0].pending->request.call;
  fused.input = fused.output = nullptr;
  fused.count = 0;
  if (fused.place) fused.place = place_of(parts);
  fused.fused_counts.reserve(parts.size());
  for (const Agreed& part : parts) {
    fused.fused_counts.push_back(part.pending->request.call.count);
    fused.count += fused.fused_counts.back();
  }
  fused.agreed = true;
  fused.name += " + " + std::to_string(parts.size() - 1);
  return fused;
}

class Fused : public Task {
 public:
  Fused(const Context& context, std::vector<Agreed> parts)
      : parts_(std::move(parts)), context_(context), begun_ns_(now_ns()) {}
  void abandon() noexcept override {
    if (task_) task_->abandon();
  }

 protected:
  static const Call& call(const Agreed& part) { return part.pending->request.call; }
  std::size_t item() const { return size_of(call(parts_[0]).dtype); }
  // Records a trace event of each tensor, from the previous call or the beginning.
  void trace_all(const char* category, std::string_view detail = {}) {
    const std::int64_t begun = std::exchange(begun_ns_, now_ns());
    if (!trace().enabled()) return;
    for (const Agreed& part : parts_) {
      context_.traced(category, part.pending->name, begun, begun_ns_, call(part).count * item(), detail);
    }
  }
  void trace_run() { trace_all("run", concat("fused, ", parts_.size(), " together")); }

  const std::vector<Agreed> parts_;
  std::unique_ptr<Task> task_;

 private:
  const Context& context_;
  std::int64_t begun_ns_;
};

// Reduces tensors in their own memory.
class ScatteredTask final : public Fused {
 public:
  ScatteredTask(const Context& context, Channel& channel, std::vector<Agreed> parts, Call fused)
      : Fused(context, std::move(parts)) {
    fused.fragments.reserve(parts_.size());
    for (const Agreed& part : parts_)
      fused.fragments.push_back({call(part).input, call(part).output, call(part).count});
    task_ = channel.start(std::move(fused));
  }
  Progress advance() override {
    const Progress progress = task_->advance();
    if (progress == Progress::done) trace_run();
    return progress;
  }
};

// Packs tensors into one buffer, scaling them by `pre`, and unpacks the result.
class PackedTask final : public Fused {
 public:
  PackedTask(const Context& context, Channel& channel, ArenaRoom& buffer, std::vector<Agreed> parts, Call fused,
             kernels::Scale pre)
      : Fused(context, std::move(parts)), channel_(channel), buffer_(buffer.at_least(fused.count * item())),
        fused_(std::move(fused)), pre_(pre) {
    fused_.input = fused_.output = buffer_;
  }

  Progress advance() override {
    if (phase_ == Phase::pack) return copy_some(true), Progress::moved;
    if (phase_ == Phase::unpack) return copy_some(false) ? Progress::done : Progress::moved;
    const Progress progress = task_->advance();
    if (progress != Progress::done) return progress;
    task_.reset();
    trace_run();
    phase_ = Phase::unpack;
    return Progress::moved;
  }

 private:
  enum class Phase : std::uint8_t { pack, run, unpack };
  static constexpr std::size_t kBytesPerTurn = 4 << 20;  // then other sources get a turn

  // Copies complete tensors, until kBytesPerTurn are copied. Returns true once all are copied.
  bool copy_some(bool in) {
    for (std::size_t bytes = 0; next_ < parts_.size() && bytes < kBytesPerTurn; ++next_) {
      const Call& part_call = call(parts_[next_]);
      const std::size_t length = part_call.count * item();
      if (length > 0 && in) kernels::scale(part_call.dtype, buffer_ + at_, part_call.input, part_call.count, pre_);
      if (length > 0 && !in) kernels::copy(part_call.output, buffer_ + at_, length);
      at_ += length;
      bytes += length;
    }
    if (next_ < parts_.size()) return false;
    trace_all(in ? "pack" : "unpack");
    next_ = at_ = 0;
    if (in) start();
    return true;
  }

  void start() {
    task_ = channel_.start(std::move(fused_));
    phase_ = Phase::run;
  }

  Channel& channel_;
  std::byte* const buffer_;
  Call fused_;
  const kernels::Scale pre_;
  std::size_t next_ = 0, at_ = 0;
  Phase phase_ = Phase::pack;
};

}  // namespace

std::unique_ptr<Task> make_bucket(const Context& context, Channel& channel, ArenaRoom& buffer,
                                  std::vector<Agreed> parts, bool joined) {
  if (parts.size() == 1) return channel.start(call_of(parts[0], channel, buffer, joined));
  Call fused = fused_call(parts);
  fused.has_placeholders = joined;
  if (parts[0].pending->is_placeholder) {
    fill_identity(fused, buffer, channel.rank());
    return channel.start(std::move(fused));
  }
  if (fused.place) return std::make_unique<ScatteredTask>(context, channel, std::move(parts), std::move(fused));
  const kernels::Scale pre = joined ? std::exchange(fused.pre, {}) : kernels::Scale{};
  if (pre.identity() && channel.takes_fragments(fused))
    return std::make_unique<ScatteredTask>(context, channel, std::move(parts), std::move(fused));
  return std::make_unique<PackedTask>(context, channel, buffer, std::move(parts), std::move(fused), pre);
}

}  // namespace ringcomm
