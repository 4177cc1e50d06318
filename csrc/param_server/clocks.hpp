// How far each worker is: what bounded staleness, turns and synchronous methods wait for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "shm/node.hpp"

namespace ringcomm::store {

// A view of a table in memory that the ranks of a host share; zeros are one in which nobody has begun.
class Clocks {
 public:
  static constexpr std::int64_t kFinished = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kLost = kFinished - 1;  // died, as somebody saw; finished for all who wait
  static std::size_t bytes(int workers);

  // `of_host`: which worker each rank of the node is; empty: the one of that number.
  Clocks(void* memory, int workers, Node* node, std::vector<int> of_host = {});
  void set(int worker, std::int64_t clock);  // wakes who waits
  std::int64_t of(int worker) const;
  std::int64_t least() const;  // kLost or more if all have finished
  int live() const;            // workers that have not finished
  // Whether `worker` (-1: every one) is so far, after waiting for so long at most. A worker whose process has ended
  // before it had finished is lost.
  bool wait(int worker, std::int64_t clock, std::int64_t longest_ns);
  void wake();                                              // whoever waits looks again
  void sleep(std::uint32_t seen, std::int64_t longest_ns);  // until somebody wakes; `seen`: ticks() before looking
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
