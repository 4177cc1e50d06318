// A lock in memory that ranks of a host share. Shards have one per stripe of weights.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/node.hpp"

namespace ringcomm::store {

// A cache line with a lock, and the data that it guards besides the stripe itself. Zeros are a free
// lock.
struct alignas(64) Lock {
  std::atomic<std::uint32_t> word;  // 0 free; otherwise holder + 1, with kWaited if a rank may be sleeping
  std::uint32_t unused;
  std::uint64_t updates;  // updates of the stripe's weights

  static constexpr std::uint32_t kWaited = std::uint32_t{1} << 31;

  bool try_take(int rank);
  // Spins briefly, then sleeps. Takes the lock from a holder that has died; the guarded data is as
  // the holder left it. Returns whether the holder had died.
  bool take(Node* node, int rank);
  void give_back();
};
static_assert(sizeof(Lock) == 64);

}  // namespace ringcomm::store
