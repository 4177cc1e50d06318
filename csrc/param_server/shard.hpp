// Weights in memory that the ranks of a host share. They are divided into stripes of kStripe bytes,
// each with a lock. Any rank applies an optimizer's rule to the weights itself, stripe by stripe:
// there is neither a server process nor a message. Python's LocalShard and Server use it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "kernels/update.hpp"
#include "param_server/clocks.hpp"
#include "param_server/lock.hpp"
#include "shm/node.hpp"

namespace ringcomm::store {

using kernels::Rule;
using kernels::RuleOptions;

// Defines which gradients form one update.
struct Gathering {
  int many = 1;          // an update is the mean of this number of gradients; of fewer if fewer workers remain
  bool of_step = false;  // only gradients of the current step: later ones wait, and earlier ones are dropped
  std::size_t sum = 0;   // index of the shard's sum to which this rank's gradient is added
};

enum class Arrival : std::uint8_t { applied, gathered, dropped, full };  // full: not accepted yet; wait and retry

// The state of a shard, shared by all ranks. A new shard's state is all zeros.
struct ShardHeader {
  // updates of the first stripe; other stripes may have been updated in another order
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> broken;  // locks taken from ranks that died
  Lock gather;                        // guards the fields below
  std::uint64_t group;                // number of updates from gathered gradients
  // Numbers of gradients for the current update that have been accepted, and added to a sum.
  std::uint32_t arrived, done;
};

struct Range {
  std::uint64_t first = 0, count = 0;  // elements
};

// This process's view of one shard, of floats or (`wide`) doubles; arrays have the same type. One
// thread at a time may use a view.
class Shard {
 public:
  static constexpr std::size_t kStripe = 16384;  // bytes
  // Returns the size of a shard. `sums`: number of sums in which gradients are gathered; 0: none.
  // Several sums are added in their order, so that the update does not depend on the order of
  // arrival.
  static std::size_t bytes(std::size_t count, bool wide, std::size_t states, std::size_t sums);

  // `memory`: bytes() bytes in `owner`'s arena. The owner calls make() before other ranks use it.
  Shard(void* memory, int owner, std::size_t count, bool wide, std::size_t states, std::size_t sums,
        std::shared_ptr<Node> node, int rank);
  void make(const void* weights);  // by the owner

  std::size_t element() const { return element_; }  // bytes
  std::size_t count() const { return count_; }
  std::size_t sums() const { return sums_; }
  std::uint64_t version() const { return header_.version.load(std::memory_order_acquire); }
  std::uint64_t broken() const { return header_.broken.load(std::memory_order_relaxed); }
  std::uint64_t group();  // number of updates from gathered gradients

  // Applies a rule to a range; `gradient`, `pulled` and `result` have its length. Atomic per
  // stripe. Returns the version before this change: of two calls, the one with the lower version
  // was first at the first stripe.
  std::uint64_t apply(Rule rule, const RuleOptions& options, const Range& range, const void* gradient,
                      const void* pulled, void* result);
  // Applies a rule to several ranges. Their elements are contiguous in the arrays.
  std::uint64_t apply(Rule rule, const RuleOptions& options, std::span<const Range> ranges, const void* gradient,
                      const void* pulled, void* result);
  // Gathers a gradient of the complete shard. Does not wait for other workers.
  Arrival gather(const Gathering& how, std::uint64_t clock, Rule rule, const RuleOptions& options, const void* gradient,
                 const Clocks& clocks);
  // Gather a gradient in parts: call enter(); if it returns `gathered`, add() all parts; then
  // leave().
  Arrival enter(const Gathering& how, std::uint64_t clock);
  void add(std::size_t sum, double scale, const Range& range, const void* gradient);
  Arrival leave(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks);
  // Applies the gathered gradients if no more can arrive. With Rule::get, does nothing: a claim()
  // takes the gradients.
  bool apply_if_complete(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks);
  // Takes the gathered gradients: returns their number, and their sum in `sum`; 0 if more can still
  // arrive. Other ranks wait until release().
  std::uint32_t claim(const Gathering& how, const Clocks& clocks, void* sum);
  void release();
  bool gathers_now();  // gradients have been gathered and not applied yet
  // Sets both shards' elements to their mean, atomically per stripe; the counts are equal. Returns
  // both versions before this change.
  std::pair<std::uint64_t, std::uint64_t> average_with(Shard& other);

 private:
  struct GiveBack {
    void operator()(Lock* lock) const { lock->give_back(); }
  };
  using Held = std::unique_ptr<Lock, GiveBack>;
  Held hold(Lock& lock);
  template <class Act>
  void each_stripe(const Range& range, Act&& act);
  // Returns the address of an element of array `number`. Array 0 contains the weights; the states
  // and then the sums follow.
  std::byte* array(std::size_t number, std::size_t element = 0) const;
  std::size_t sum(std::size_t number) const { return 1 + states_ + number; }
  void update(Rule rule, const RuleOptions& options, std::uint64_t step, std::size_t target, const Range& range,
              const void* gradient, const void* pulled, void* result);
  void count_update(Lock& lock, bool changes);
  std::uint32_t complete(const Gathering& how, const Clocks& clocks);
  void apply_gathered(Rule rule, RuleOptions options, std::uint32_t number);
  void fold(const Range& range);
  void clear(std::size_t number, const Range& range);

  ShardHeader& header_;
  const int owner_;
  const std::size_t element_, count_, stripe_, stripes_, states_, sums_;
  Lock* const locks_;
  const std::shared_ptr<Node> node_;
  const int rank_;
};

}  // namespace ringcomm::store
