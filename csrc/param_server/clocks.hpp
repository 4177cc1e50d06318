// The clocks of workers: the step that each worker has reached. Bounded staleness, updates in a
// fixed order of workers, and synchronous methods wait for clocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "shm/node.hpp"

namespace ringcomm::store {

// A view of a table in memory that the ranks of a host share. A table of zeros is valid: no worker
// has begun.
class Clocks {
 public:
  static constexpr std::int64_t kFinished = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kLost = kFinished - 1;  // died before it finished; counts as finished for all waiters
  static std::size_t bytes(int workers);

  // `of_host`: worker of each rank of the node; empty: worker and rank are equal.
  Clocks(void* memory, int workers, Node* node, std::vector<int> of_host = {});
  void set(int worker, std::int64_t clock);  // wakes waiters
  std::int64_t of(int worker) const;
  std::int64_t least() const;  // kLost or more if all have finished
  int live() const;            // workers that have not finished
  // Waits until `worker` (-1: all workers) has reached `clock`, for `longest_ns` at most. Returns
  // false after that time. A worker is lost if its process ended before it had finished.
  bool wait(int worker, std::int64_t clock, std::int64_t longest_ns);
  void wake();                                              // waiters check again
  void sleep(std::uint32_t seen, std::int64_t longest_ns);  // until a wake(); `seen`: ticks() before the last check
  std::uint32_t ticks() const;
  void look_for_dead();
  std::vector<int> lost() const;

 private:
  struct alignas(64) Entry {
    std::atomic<std::int64_t> clock;
  };
  struct alignas(64) Bell {
    std::atomic<std::uint32_t> ticks, sleepers;
  };
  Bell& bell_;
  Entry* const entries_;
  const int workers_;
  Node* const node_;
  const std::vector<int> of_host_;
};

}  // namespace ringcomm::store
