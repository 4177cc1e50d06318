// A pool of blocks of a few sizes in this rank's arena. Arrays that are allocated in every training
// step are thereby stored where the host's other ranks can read them, in pages that exist already.
// The memory functions of frameworks (served_memory.hpp) allocate from it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/at_fork.hpp"
#include "shm/node.hpp"

namespace ringcomm {

class BlockPool {
 public:
  explicit BlockPool(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Adds `more` (may be negative) to the number of blocks of this size that may be in use at the
  // same time. If the number becomes zero, unused blocks return to the arena.
  void serve(std::size_t nbytes, int more);
  void* take(std::size_t nbytes) noexcept;  // 4096-byte aligned; null: unknown size, limit reached, or no memory
  bool give_back(void* block) noexcept;     // false: the block is not from this pool
  std::size_t in_use() const;

 private:
  struct Size {
    int most = 0, used = 0;
    bool refused = false;  // the system refused; no new attempt until a block is given back
    std::vector<void*> idle{};
  };
  void drop(Size& size);
  const std::shared_ptr<Node> node_;
  mutable std::mutex mutex_;
  std::map<std::size_t, Size> sizes_;
  std::unordered_map<void*, std::size_t> used_;  // block -> bytes
  const AtFork fork_{1, {[this] { mutex_.lock(); }, [this] { mutex_.unlock(); }}};
};

}  // namespace ringcomm
