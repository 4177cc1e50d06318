// Implements Lock: a futex lock that can be taken from a dead holder.
#include "param_server/lock.hpp"

#include <algorithm>
#include <thread>

#include "shm/futex.hpp"

namespace ringcomm::store {
namespace {
// few, because ranks often outnumber cores: the holder may need this core
constexpr int kSpins = 100;
constexpr std::int64_t kLookAfter = 20'000'000;  // ns before the holder's process is checked
}  // namespace

bool Lock::try_take(int rank) {
  std::uint32_t expected = 0;
  return word.compare_exchange_strong(expected, static_cast<std::uint32_t>(rank) + 1, std::memory_order_acquire,
                                      std::memory_order_relaxed);
}

bool Lock::take(Node* node, int rank) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (try_take(rank)) return false;
  }
  const std::uint32_t mine = (static_cast<std::uint32_t>(rank) + 1) | kWaited;
  for (;;) {
    std::uint32_t seen = word.load(std::memory_order_relaxed);
    if (seen == 0) {
      if (word.compare_exchange_strong(seen, mine, std::memory_order_acquire)) return false;
      continue;
    }
    if (!(seen & kWaited) && !word.compare_exchange_strong(seen, seen | kWaited, std::memory_order_relaxed)) continue;
    seen |= kWaited;
    futex_wait(word, seen, kLookAfter);
    if (node == nullptr || word.load(std::memory_order_relaxed) != seen) continue;
    const int holder = static_cast<int>(seen & ~kWaited) - 1;
    const std::vector<int> dead = node->dead();
    if (std::find(dead.begin(), dead.end(), holder) == dead.end()) continue;
    if (word.compare_exchange_strong(seen, mine, std::memory_order_acquire)) return true;
  }
}

void Lock::give_back() {
  if (word.exchange(0, std::memory_order_release) & kWaited) futex_wake(word);
}

}  // namespace ringcomm::store
