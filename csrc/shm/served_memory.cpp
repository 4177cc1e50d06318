// Implements the redirected posix_memalign and free: they use the pools, then the C library.
#include "shm/served_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <vector>

#include "base/at_fork.hpp"
#include "base/imports.hpp"
#include "shm/arena.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kLeast = 64 << 10;  // bytes; smaller blocks go to the C library without a lookup

struct Server {
  std::shared_ptr<BlockPool> pool;
  bool serves = true;
};
using Servers = std::vector<Server>;

// Never destroyed: blocks are freed until the process has ended.
struct Served {
  std::mutex mutex;
  Servers servers;
  std::atomic<bool> serving{false};  // at least one pool serves
  // The range that contains all blocks ever allocated here. Most calls of free() have an address
  // outside it, and need no lookup.
  std::atomic<std::uintptr_t> low{~std::uintptr_t{0}}, high{0};
  const AtFork fork{0, {[this] { mutex.lock(); }, [this] { mutex.unlock(); }}};
};

Served& served() {
  static Served* const served = new Served;
  return *served;
}

// Removes pools that neither serve nor have blocks in use. The mutex must be held. The caller must
// destroy the result after it has released the mutex. Otherwise a deadlock is possible: the
// destructor of a pool waits for a fork in progress, and the fork waits for the mutex.
[[nodiscard]] Servers take_empty(Served& all) {
  const auto over = std::stable_partition(all.servers.begin(), all.servers.end(), [](const Server& server) {
    return server.serves || server.pool->in_use() > 0;
  });
  Servers empty(std::make_move_iterator(over), std::make_move_iterator(all.servers.end()));
  all.servers.erase(over, all.servers.end());
  return empty;
}

// Allocates from the newest pool that has a block; returns null if no pool has one. The mutex must
// be held. The newest pool is first, so that its creator can test whether it serves.
void* take(Served& all, std::size_t nbytes) {
  for (auto server = all.servers.rbegin(); server != all.servers.rend(); ++server) {
    if (!server->serves) continue;
    if (void* const block = server->pool->take(nbytes)) return block;
  }
  return nullptr;
}

}  // namespace

int served_memalign(void** block, std::size_t alignment, std::size_t nbytes) {
  Served& all = served();
  if (nbytes >= kLeast && alignment <= kPage && all.serving.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(all.mutex);
    if (void* const taken = take(all, nbytes)) {
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
  Servers empty;
  const std::lock_guard lock(all.mutex);
  const bool ours = std::any_of(all.servers.begin(), all.servers.end(),
                                [&](const Server& server) { return server.pool->give_back(block); });
  if (!ours) return ::free(block);
  empty = take_empty(all);
}

void serve_from(std::shared_ptr<BlockPool> pool) {
  Served& all = served();
  const std::lock_guard lock(all.mutex);
  all.servers.push_back({std::move(pool)});
  all.serving = true;
}

void serve_no_more_from(const BlockPool& pool) {
  Served& all = served();
  Servers empty;
  const std::lock_guard lock(all.mutex);
  for (Server& server : all.servers) {
    if (server.pool.get() == &pool) server.serves = false;
  }
  all.serving = std::any_of(all.servers.begin(), all.servers.end(), [](const Server& server) { return server.serves; });
  empty = take_empty(all);
}

bool serve_library(std::string_view library) {
  const auto allocations = imports(library, "posix_memalign"), frees = imports(library, "free");
  if (allocations.empty() || frees.empty()) return false;
  // Redirects free first, because another thread may allocate between the two redirections.
  return redirect(frees, reinterpret_cast<void*>(&served_free)) &&
         redirect(allocations, reinterpret_cast<void*>(&served_memalign));
}

}  // namespace ringcomm
