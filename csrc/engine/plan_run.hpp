// A plan at work: a training step's buckets, reduced in a fixed order on a channel of their own.
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

#include "call/channel.hpp"
#include "engine/in_flight.hpp"
#include "engine/low_rank.hpp"
#include "engine/pending.hpp"

namespace ringcomm {

struct PlanShape {
  std::string name;  // "plan/<name>": of the operation that agrees on a step
  std::vector<PlanBucket> buckets;
  Op op = Op::average;
  kernels::Scale pre, post;
  std::size_t items = 0;
  std::string algorithm{};  // of its calls; "": chosen
};

class PlanRun : public std::enable_shared_from_this<PlanRun> {
 public:
  // `steps`: completed by earlier plans of this name.
  PlanRun(InFlight& in_flight, PlanShape shape, std::size_t stream, std::unique_ptr<Channel> channel,
          std::uint64_t steps);

  const std::string& name() const { return shape_.name; }
  const Descriptor& signature() const { return signature_; }
  std::size_t stream() const { return stream_; }

  // ---- the caller's thread
  PendingPtr prepare();                  // a new step, to be submitted
  bool begun() const { return begun_; }  // by the caller; false again after finish()
  bool stepping() const { return begun_ || (step_ && !step_->done()); }
  bool takes_stretches(std::size_t bucket) const { return memory_.at(bucket).apart; }
  void place(std::size_t bucket, std::size_t stretch, void* data);
  void ready(std::size_t bucket, std::shared_ptr<Place> place);
  std::shared_ptr<Operation> finish(std::vector<std::uint8_t> present);
  bool bucket_done(std::size_t bucket) const { return bucket < done_.load(std::memory_order_acquire); }
  void fail_step(std::exception_ptr error);  // it could not be submitted
  void require_rest() const;                 // throws Error(invalid) while a step is under way
  Feedback* feedback() { return feedback_.get(); }

  // ---- the worker
  // A stand-in: this rank has joined, and answers with identities. `joined`: some rank has. Steps run in the
  // order agreed.
  void agree(PendingPtr pending, bool joined);
  bool turn();  // true if anything moved. Throws what is fatal
  bool moving() const { return task_ != nullptr; }
  bool answering() const;  // a step as a stand-in is under way
  bool finishing() const { return finishing_.load(std::memory_order_acquire); }
  std::uint64_t steps() const { return steps_.load(); }  // completed; any thread
  // A rank that leaves completes so many steps of each plan; the others fail with this.
  void end_at(const std::vector<std::pair<std::string, std::uint64_t>>& steps, const Error& error);
  void drop() noexcept;  // what is agreed is given up

 private:
  bool start_next();  // false: nothing can start
  struct Step {
    PendingPtr pending;
    bool joined;
  };
  bool stands_in() const { return agreed_.front().pending->stand_in; }
  bool nothing_follows() const { return stands_in() || finishing(); }  // to be filled
  struct BucketMemory {
    bool apart = false;              // each stretch where it says; else all of them behind the first
    std::vector<void*> places;       // of stretches
    std::shared_ptr<Place> where{};  // of this step; null: the host's memory
  };
  std::vector<BucketMemory> make_memory();
  Call plain_call(const PlanBucket& bucket) const;  // but for where its data lies
  Call bucket_call();
  void lay_out(Call& call, const PlanBucket& bucket, const BucketMemory& memory) const;
  Call flags_call();
  void end_step(std::exception_ptr error);
  void count(Pending& step);
  Descriptor make_signature() const;
  std::unique_ptr<Feedback> make_feedback() const;
  std::vector<std::unique_ptr<LowRankFactors>> make_factors() const;
  bool in_first_steps(const PlanBucket& bucket) const;

  InFlight& in_flight_;
  const PlanShape shape_;
  const std::size_t stream_;
  const Descriptor signature_;
  const std::unique_ptr<Channel> channel_;  // the worker's, once this is made
  const std::shared_ptr<Entry> entry_;      // of steps; its buckets have the channel's
  const std::uint64_t past_steps_;          // of earlier plans of this name
  std::atomic<std::uint64_t> steps_;        // counted by the worker
  // Shared: the caller fills, the worker reads.
  std::vector<BucketMemory> memory_;  // by bucket; written before ready_, or finishing_
  std::vector<std::atomic<std::uint8_t>> ready_;
  std::atomic<bool> finishing_{false};
  std::vector<std::uint8_t> present_;  // written before finishing_
  std::atomic<std::size_t> done_{0};   // buckets
  // The caller's.
  bool begun_ = false;
  PendingPtr step_;
  // The worker's.
  std::unique_ptr<Feedback> feedback_;                    // null: nothing is held back
  std::vector<std::unique_ptr<LowRankFactors>> factors_;  // by bucket; null: it travels whole
  std::deque<Step> agreed_;                               // the first one runs
  std::size_t next_ = 0;
  bool flagged_ = false;  // the flags have been summed
  std::vector<std::int32_t> flags_;
  std::shared_ptr<std::byte[]> identity_;  // of the bucket that runs, where this rank stands in
  std::unique_ptr<Task> task_;
  std::uint64_t ends_at_ = std::numeric_limits<std::uint64_t>::max();
  std::optional<Error> left_;  // why it ends there
};

}  // namespace ringcomm
