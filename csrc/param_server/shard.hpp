// Weights in memory that the ranks of a host share, to which any of them applies an optimizer's rule: the caller does
// it, under locks of stripes. No server process, and no message.
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

// How many gradients make an update, and which.
struct Gathering {
  int many = 1;          // their mean is one update; fewer, where fewer workers are left
  bool of_step = false;  // those of one clock: a later one waits for its turn, and one that comes late is dropped
  std::size_t sum = 0;   // to which of the shard's sums it is added
};

enum class Arrival : std::uint8_t { applied, gathered, dropped, full };  // full: not taken yet; wait, and come again

// What a shard keeps for all ranks; zeros are a new one.
struct ShardHeader {
  std::atomic<std::uint64_t> version;  // updates of the first stripe: others may have seen them in another order
  std::atomic<std::uint64_t> broken;   // locks taken from ranks that died
  Lock gather;                         // guards the rest
  std::uint64_t group;                 // updates of gathered gradients applied
  std::uint32_t arrived, done;         // gradients of this group: that have come, and have been added
};

struct Range {
  std::uint64_t first = 0, count = 0;  // elements
};

// This process's view of one shard, of floats or (`wide`) of doubles, as which arrays are taken. A view is used by one
// thread at a time.
class Shard {
 public:
  static constexpr std::size_t kStripe = 16384;  // bytes
  // `sums`: in which gradients are gathered; 0: they are not. Several are added up in their order, so that the update
  // does not depend on who came first.
  static std::size_t bytes(std::size_t count, bool wide, std::size_t states, std::size_t sums);

  // `memory` of so many bytes in `owner`'s arena, who makes it before others look.
  Shard(void* memory, int owner, std::size_t count, bool wide, std::size_t states, std::size_t sums,
        std::shared_ptr<Node> node, int rank);
  void make(const void* weights);  // by the owner

  std::size_t element() const { return element_; }  // bytes
  std::size_t count() const { return count_; }
  std::size_t sums() const { return sums_; }
  std::uint64_t version() const { return header_.version.load(std::memory_order_acquire); }
  std::uint64_t broken() const { return header_.broken.load(std::memory_order_relaxed); }
  std::uint64_t group();  // updates of gathered gradients

  // Applies a rule to a range, of which `gradient`, `pulled` and `result` are. Torn only between stripes. Returns the
  // version before it: of two calls it tells which came first to the first stripe.
  std::uint64_t apply(Rule rule, const RuleOptions& options, const Range& range, const void* gradient,
                      const void* pulled, void* result);
  // To several: their elements lie one behind the other in the arrays.
  std::uint64_t apply(Rule rule, const RuleOptions& options, std::span<const Range> ranges, const void* gradient,
                      const void* pulled, void* result);
  // A gradient of all of it that is gathered first. Does not wait for other workers.
  Arrival gather(const Gathering& how, std::uint64_t clock, Rule rule, const RuleOptions& options, const void* gradient,
                 const Clocks& clocks);
  // The same in parts, where it comes in parts: enter; if that says `gathered`, add all of it; then leave.
  Arrival enter(const Gathering& how, std::uint64_t clock);
  void add(std::size_t sum, double scale, const Range& range, const void* gradient);
  Arrival leave(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks);
  // Applies what has been gathered, if as many have come as can still come. Rule::get: leaves it to who claims it.
  bool settle(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks);
  // By hand: how many have been gathered, if that is all that can still come (else 0), and their sum. Others wait until
  // release().
  std::uint32_t claim(const Gathering& how, const Clocks& clocks, void* sum);
  void release();
  bool gathers_now();  // something has been gathered and is not applied yet
  // Both shards' elements become their mean: of equal counts, atomically by stripe. Returns both versions before it.
  std::pair<std::uint64_t, std::uint64_t> average_with(Shard& other);

 private:
  struct GiveBack {
    void operator()(Lock* lock) const { lock->give_back(); }
  };
  using Held = std::unique_ptr<Lock, GiveBack>;
  Held hold(Lock& lock);
  template <class Act>
  void each_stripe(const Range& range, Act&& act);
  // Arrays by number: weights, states, sums.
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
