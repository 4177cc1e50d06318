// Runs a plan: reduces the parts of each training step, which are its buckets and the flags, in the
// order of PartOrder, on the plan's own channel. The set gives it turns; Plan is the caller's side.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/channel.hpp"
#include "engine/in_flight.hpp"
#include "engine/plans/low_rank.hpp"
#include "engine/plans/part_order.hpp"
#include "engine/plans/plan_input.hpp"

namespace ringcomm {

struct PlanShape {
  std::string name;  // "plan/<name>": name of the operation that agrees on a step
  std::vector<PlanBucket> buckets;
  Op op = Op::average;
  kernels::Scale pre, post;
  std::size_t items = 0;
  std::string algorithm{};   // algorithm of its calls; "": chosen automatically
  bool by_priority = false;  // otherwise in their order. Needs items
  bool overlaps = true;      // buckets run before finish(), while the program computes the next ones
};

// The worker's side of a plan. Only the worker uses it, except the parts marked otherwise.
class PlanRun {
 public:
  // `steps`: completed by earlier plans of this name.
  PlanRun(InFlight& in_flight, PlanShape shape, std::size_t stream, std::unique_ptr<Channel> channel,
          std::uint64_t steps);

  // ---- any thread
  const PlanShape& shape() const { return shape_; }
  const std::string& name() const { return shape_.name; }
  const Descriptor& signature() const { return signature_; }
  std::size_t stream() const { return stream_; }
  std::uint64_t steps() const { return steps_.load(); }  // completed

  // ---- the caller
  PlanInput input;
  Feedback* feedback() { return feedback_.get(); }  // between steps

  // ---- the worker
  // Adds an agreed step. If it is a placeholder, this rank has joined and contributes identities.
  // `joined`: a rank of the set has joined. Steps run in the order agreed.
  void agree(OperationStatePtr pending, bool joined);
  bool turn();  // true if anything moved. Throws fatal errors
  bool moving() const { return task_ != nullptr; }
  bool answering() const;  // a step of which this rank has only a placeholder is in progress
  // Limits the plan to the steps that a leaving rank completes; later steps fail with `error`.
  void end_at(const std::vector<std::pair<std::string, std::uint64_t>>& steps, const Error& error);
  void drop() noexcept;  // abandons agreed steps

 private:
  bool start_next();  // false: nothing can start
  void end_task();
  struct Step {
    OperationStatePtr pending;
    bool joined;
  };
  bool has_placeholder() const { return agreed_.front().pending->is_placeholder; }
  std::size_t flags() const { return shape_.buckets.size(); }  // part number of the flags
  bool ready(std::size_t part) const;                          // on this rank
  void start(std::size_t part);
  bool nothing_follows() const { return has_placeholder() || input.whole(); }  // no more buckets will be filled
  Call cached_call(const PlanBucket& bucket) const;                            // without the address of its data
  Call bucket_call(std::size_t number);
  void lay_out(Call& call, const PlanBucket& bucket, const PlanInput::Bucket& given) const;
  Call numbers_call(std::vector<std::int32_t>& numbers, Op op, const char* name) const;
  Call flags_call();
  void begin_step();  // prepares for the next step
  void end_step(std::exception_ptr error);
  void count(OperationState& step);
  Descriptor make_signature() const;
  bool in_first_steps(const PlanBucket& bucket) const;

  InFlight& in_flight_;
  const PlanShape shape_;
  const std::size_t stream_;
  const Descriptor signature_;
  const std::unique_ptr<Channel> channel_;
  const std::shared_ptr<Entry> entry_;  // counts steps; calls of its buckets are counted in the channel's entries
  const std::uint64_t past_steps_;      // steps of earlier plans of this name
  std::atomic<std::uint64_t> steps_;
  std::unique_ptr<Feedback> feedback_;                    // null: no bucket has error feedback
  std::vector<std::unique_ptr<LowRankFactors>> factors_;  // by bucket; null: sent uncompressed
  std::deque<Step> agreed_;                               // the first one runs
  PartOrder order_;
  std::optional<std::size_t> part_;  // runs; none: the agreement on the next ones, or nothing
  std::int64_t since_ns_ = 0;        // when it started
  std::vector<std::int32_t> flags_;
  std::shared_ptr<std::byte[]> identity_;  // input of the bucket that runs, if this rank contributes identities
  std::unique_ptr<Task> task_;
  std::uint64_t ends_at_ = std::numeric_limits<std::uint64_t>::max();
  std::optional<Error> left_;  // the reason for `ends_at_`
};

}  // namespace ringcomm
