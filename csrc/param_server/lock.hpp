// A lock in memory that ranks of a host share.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/node.hpp"

namespace ringcomm::store {

// One cache line: a lock, and what it guards besides the stripe itself. Zeros are one that is free.
struct alignas(64) Lock {
  std::atomic<std::uint32_t> word;  // 0 free; holder + 1, and kWaited if somebody may be sleeping
  std::uint32_t unused;
  std::uint64_t updates;  // of the stripe's weights

  static constexpr std::uint32_t kWaited = std::uint32_t{1} << 31;

  bool try_take(int rank);
  // Spins a little, then sleeps. A holder that has died loses it: what it guards is as the holder left it. Returns
  // whether that happened.
  bool take(Node* node, int rank);
  void give_back();
};
static_assert(sizeof(Lock) == 64);

}  // namespace ringcomm::store
