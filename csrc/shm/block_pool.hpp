// Blocks of a few sizes in this rank's arena, used again and again: arrays that are made and dropped in every training
// step then lie where the host's other ranks can read them, in pages that need not be made anew.
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

  // So many more blocks of this size may be in use at a time, or (negative) so many fewer. Those not in use go back
  // to the arena when a size has none left.
  void serve(std::size_t nbytes, int more);
  void* take(std::size_t nbytes) noexcept;  // 4096-byte aligned. Null: not a size, or number, or memory, to be had
  bool give_back(void* block) noexcept;     // false: it is none of these
  std::size_t in_use() const;

 private:
  struct Size {
    int most = 0, used = 0;
    bool refused = false;  // by the system: until a block comes back nobody asks again
    std::vector<void*> idle{};
  };
  void drop(Size& size);
  const std::shared_ptr<Node> node_;
  mutable std::mutex mutex_;
  std::map<std::size_t, Size> sizes_;
  std::unordered_map<void*, std::size_t> used_;  // sizes
  const AtFork fork_{1, {[this] { mutex_.lock(); }, [this] { mutex_.unlock(); }}};
};

}  // namespace ringcomm
