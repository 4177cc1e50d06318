// Implements PlanRun: the steps of a plan, one bucket after the other.
#include "engine/plans/plan_run.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/fields.hpp"
#include "device/placeholder.hpp"
#include "engine/agreement/signature.hpp"
#include "host_collectives/scattered.hpp"

namespace ringcomm {

PlanRun::PlanRun(InFlight& in_flight, PlanShape shape, std::size_t stream, std::unique_ptr<Channel> channel,
                 std::uint64_t steps)
    : input(shape.buckets.size()), in_flight_(in_flight), shape_(std::move(shape)), stream_(stream),
      signature_(make_signature()), channel_(std::move(channel)),
      entry_(channel_->account().entry("training step", "plan")), past_steps_(steps), steps_(steps),
      order_(shape_.buckets.size() + (shape_.items > 0 ? 1 : 0), shape_.by_priority) {
  std::vector<std::size_t> residual_counts;  // elements
  bool any = false;
  for (const PlanBucket& bucket : shape_.buckets) {
    const Call call = cached_call(bucket);
    const std::size_t stretches = std::max<std::size_t>(1, bucket.stretches.size());
    input.buckets.push_back({stretches > 1 && channel_->takes_fragments(call), std::vector<void*>(stretches)});
    input.buckets.back().stretches[0] = bucket.data;
    const bool thin = bucket.low_rank.rank > 0 && channel_->sends(call);
    factors_.push_back(thin ? std::make_unique<LowRankFactors>(bucket.low_rank, factors_.size()) : nullptr);
    residual_counts.push_back(bucket.wire.feedback ? bucket.count : 0);
    any |= bucket.wire.feedback;
  }
  if (any) feedback_ = std::make_unique<Feedback>(residual_counts);
}

// Returns the values that must be equal on every rank; one is the stream, which determines tags.
Descriptor PlanRun::make_signature() const {
  Hash buckets;
  std::size_t count = 0;
  for (const PlanBucket& bucket : shape_.buckets) {
    buckets.add(static_cast<std::uint64_t>(bucket.dtype)).add(bucket.count).add(bucket.wire.usual.code());
    buckets.add(bucket.on_device).add(bucket.wire.first.code()).add(bucket.wire.first_steps);
    for (const std::size_t stretch : bucket.stretches) buckets.add(stretch);
    buckets.add(bucket.low_rank.rank).add(bucket.low_rank.warm_start);
    for (const auto& [first, rows, columns] : bucket.low_rank.matrices) buckets.add(first).add(rows).add(columns);
    count += bucket.count;
  }
  Descriptor d;
  d.collective = static_cast<std::uint8_t>(Collective::allreduce);
  d.dtype = shape_.buckets.empty() ? 0 : static_cast<std::uint8_t>(shape_.buckets[0].dtype);
  d.op = static_cast<std::uint8_t>(shape_.op);
  d.wire = shape_.buckets.empty() ? 0 : shape_.buckets[0].wire.usual.code();
  d.count = count;
  d.shape = buckets.add(shape_.items).add(stream_).add(shape_.by_priority).value();
  d.pre = ScaleBits(shape_.pre);
  d.post = ScaleBits(shape_.post);
  d.plan = 1;
  write_field(d.algorithm, shape_.algorithm);
  write_field(d.name, shape_.name);
  write_field(d.shape_text, std::to_string(shape_.buckets.size()) + " buckets");
  return d;
}

void PlanRun::agree(OperationStatePtr pending, bool joined) { agreed_.push_back({std::move(pending), joined}); }

bool PlanRun::answering() const {
  return std::any_of(agreed_.begin(), agreed_.end(), [](const Step& step) { return step.pending->is_placeholder; });
}

bool PlanRun::turn() {
  if (agreed_.empty()) return false;
  if (steps_ >= ends_at_) {
    if (task_) task_->abandon();
    end_step(std::make_exception_ptr(left_.value().about(shape_.name)));
    return true;
  }
  bool moved = false;
  try {
    while (task_ || start_next()) {
      const Progress progress = task_->advance();
      if (progress != Progress::done) return moved || progress == Progress::moved;
      moved = true;
      end_task();
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid && error.kind() != ErrorKind::mismatch && error.kind() != ErrorKind::left)
      throw;
    if (task_) task_->abandon();
    end_step(std::current_exception());
    return true;
  }
  if (!order_.finished() || !nothing_follows()) return moved;
  end_step(nullptr);
  return true;
}

bool PlanRun::ready(std::size_t part) const {
  return has_placeholder() || (part == flags() ? input.whole() : input.has(part));
}

bool PlanRun::start_next() {
  const auto is_ready = [this](std::size_t part) { return ready(part); };
  part_ = order_.next(is_ready);
  if (part_) {
    start(*part_);
    return true;
  }
  std::vector<std::int32_t>* const numbers = order_.agree(is_ready);
  if (!numbers) return false;
  task_ = channel_->start(numbers_call(*numbers, Op::min, "/ready"));
  return true;
}

void PlanRun::start(std::size_t part) {
  since_ns_ = now_ns();
  if (part == flags()) {
    task_ = channel_->start(flags_call());
    return;
  }
  Call call = bucket_call(part);
  LowRankFactors* const factors = in_first_steps(shape_.buckets[part]) ? nullptr : factors_[part].get();
  task_ = factors ? factors->start(*channel_, std::move(call)) : channel_->start(std::move(call));
}

void PlanRun::end_task() {
  task_.reset();
  if (!part_) return order_.agreed();
  const std::size_t part = *part_;
  order_.ended(part, now_ns() - since_ns_);
  if (has_placeholder()) return;
  if (part != flags()) input.done.store(part + 1, std::memory_order_release);
  if (const auto& waits = agreed_.front().pending->parts; !waits.empty()) {
    if (part == flags()) waits[part]->counts.assign(flags_.begin(), flags_.end());
    waits[part]->finish();
  }
}

Call PlanRun::numbers_call(std::vector<std::int32_t>& numbers, Op op, const char* name) const {
  Call call;
  call.dtype = DType::int32;
  call.op = op;
  call.input = call.output = numbers.data();
  call.count = numbers.size();
  call.name = shape_.name + name;
  call.agreed = true;
  return call;
}

Call PlanRun::flags_call() {
  flags_.assign(shape_.items, 0);
  if (!has_placeholder())
    std::transform(input.present.begin(), input.present.end(), flags_.begin(), [](auto flag) { return flag != 0; });
  return numbers_call(flags_, Op::sum, "/present");
}

bool PlanRun::in_first_steps(const PlanBucket& bucket) const { return steps_ - past_steps_ < bucket.wire.first_steps; }

Call PlanRun::cached_call(const PlanBucket& bucket) const {
  Call call;
  call.dtype = bucket.dtype;
  call.op = shape_.op;
  call.algorithm = shape_.algorithm;
  call.count = bucket.count;
  call.pre = shape_.pre;
  call.post = shape_.post;
  call.wire = in_first_steps(bucket) ? bucket.wire.first : bucket.wire.usual;
  call.agreed = true;
  call.on_device = bucket.on_device;
  return call;
}

// A joined rank's identities must not be scaled, so other ranks scale their data before the call.
Call PlanRun::bucket_call(std::size_t number) {
  const PlanBucket& bucket = shape_.buckets[number];
  Call call = cached_call(bucket);
  if (bucket.wire.feedback) call.feedback = feedback_.get();
  call.tensor = number;
  call.name = concat(shape_.name, "/", number);
  call.has_placeholders = agreed_.front().joined;
  if (has_placeholder()) {
    identity_ = aligned_bytes(bucket.count * size_of(bucket.dtype));
    kernels::fill_identity(bucket.dtype, shape_.op, identity_.get(), bucket.count);
    call.input = call.output = identity_.get();
    call.pre = {};
    if (bucket.on_device) call.place = placeholder_location();
    return call;
  }
  const PlanInput::Bucket& given = input.buckets[number];
  lay_out(call, bucket, given);
  if (bucket.on_device) {
    call.place = given.place;
    return call;
  }
  const Fragment whole{call.input, call.output, call.count};
  const Scattered array(whole, call.fragments, size_of(call.dtype));
  for (const Part gap : bucket.gaps) {
    array.each(gap, [&](const Scattered::Piece& piece, auto) {
      std::memset(piece.output, 0, piece.count * size_of(call.dtype));
    });
  }
  if (!agreed_.front().joined) return call;
  const kernels::Scale pre = std::exchange(call.pre, {});
  array.each({0, call.count}, [&](const Scattered::Piece& piece, auto) {
    kernels::scale(call.dtype, piece.output, piece.input, piece.count, pre);
  });
  return call;
}

void PlanRun::lay_out(Call& call, const PlanBucket& bucket, const PlanInput::Bucket& given) const {
  if (!given.scattered) {
    call.input = call.output = given.stretches[0];
    return;
  }
  for (std::size_t i = 0; i < bucket.stretches.size(); ++i)
    call.fragments.push_back({given.stretches[i], given.stretches[i], bucket.stretches[i]});
}

void PlanRun::begin_step() {
  task_.reset();
  order_.restart();
}

void PlanRun::end_step(std::exception_ptr error) {
  const OperationStatePtr pending = agreed_.front().pending;
  agreed_.pop_front();
  begin_step();
  identity_.reset();
  ++steps_;
  if (error && feedback_) feedback_->undo_all();
  if (!error && !pending->is_placeholder) count(*pending);
  if (!error) pending->counts.assign(flags_.begin(), flags_.end());
  in_flight_.finish(pending, std::move(error));
}

void PlanRun::count(OperationState& step) {
  entry_->calls += 1;
  if (!channel_->account().timed()) return;
  entry_->add_time(now_ns() - step.submitted_ns);
  step.entry = entry_;
}

void PlanRun::end_at(const std::vector<std::pair<std::string, std::uint64_t>>& steps, const Error& error) {
  std::uint64_t completed = 0;
  for (const auto& [name, count] : steps) {
    if (name == shape_.name) completed = count;
  }
  ends_at_ = std::min(ends_at_, completed);
  left_ = error;
}

void PlanRun::drop() noexcept {
  if (task_) task_->abandon();
  agreed_.clear();
  begin_step();
}

}  // namespace ringcomm
