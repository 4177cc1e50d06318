#include "node/served_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "base/at_fork.hpp"
#include "base/imports.hpp"
#include "node/arena.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kLeast = 64 << 10;  // bytes: smaller blocks are the C library's, without a look

// Never destroyed: blocks come back until the process has ended.
struct Served {
  std::mutex mutex;
  std::vector<std::shared_ptr<BlockPool>> pools;  // the last one serves, if any does
  std::atomic<bool> serving{false};
  // All blocks that were ever given lie between these: a cheap answer for nearly every free().
  std::atomic<std::uintptr_t> low{~std::uintptr_t{0}}, high{0};
  const AtFork fork{0, {[this] { mutex.lock(); }, [this] { mutex.unlock(); }}};
};

Served& served() {
  static Served* const one = new Served;
  return *one;
}

using Pools = std::vector<std::shared_ptr<BlockPool>>;

// The mutex is held. The result is for the caller to drop when it is not: a pool that ends waits for a process that
// forks, which waits for the mutex.
[[nodiscard]] Pools take_empty(Served& all) {
  Pools empty;
  const bool serving = all.serving.load();
  for (std::size_t i = all.pools.size(); i-- > 0;) {
    if ((serving && i + 1 == all.pools.size()) || all.pools[i]->in_use() > 0) continue;
    empty.push_back(std::move(all.pools[i]));
    all.pools.erase(all.pools.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return empty;
}

}  // namespace

int served_memalign(void** block, std::size_t alignment, std::size_t nbytes) {
  Served& all = served();
  if (nbytes >= kLeast && alignment <= kPage && all.serving.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(all.mutex);
    void* const taken = all.serving ? all.pools.back()->take(nbytes) : nullptr;
    if (taken) {
      const auto begin = reinterpret_cast<std::uintptr_t>(taken);
      all.low.store(std::min(all.low.load(), begin));
      all.high.store(std::max(all.high.load(), begin + nbytes));
      *block = taken;
      return 0;
    }
  }
  return ::posix_memalign(block, alignment, nbytes);
}

void served_free(void* block) {
  Served& all = served();
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (address < all.low.load(std::memory_order_relaxed) || address >= all.high.load(std::memory_order_relaxed)) {
    ::free(block);
    return;
  }
  Pools empty;
  const std::lock_guard lock(all.mutex);
  const bool ours =
      std::any_of(all.pools.begin(), all.pools.end(), [&](const auto& pool) { return pool->give_back(block); });
  if (!ours) return ::free(block);
  if (all.pools.size() > 1 || !all.serving) empty = take_empty(all);
}

void serve_from(std::shared_ptr<BlockPool> pool) {
  Served& all = served();
  Pools empty;
  const std::lock_guard lock(all.mutex);
  all.serving = pool != nullptr;
  if (pool) all.pools.push_back(std::move(pool));
  empty = take_empty(all);
}

bool serve_library(std::string_view library) {
  const auto allocations = imports(library, "posix_memalign"), frees = imports(library, "free");
  if (allocations.empty() || frees.empty()) return false;
  // First what takes blocks back: another thread may allocate between the two.
  return redirect(frees, reinterpret_cast<void*>(&served_free)) &&
         redirect(allocations, reinterpret_cast<void*>(&served_memalign));
}

}  // namespace ringcomm
