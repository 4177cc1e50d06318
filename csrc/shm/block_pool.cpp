// Implements the pool of arena blocks. Freed blocks are kept while their size is served.
#include "shm/block_pool.hpp"

#include <new>

namespace ringcomm {

BlockPool::~BlockPool() {
  const std::lock_guard lock(mutex_);
  for (auto& [nbytes, size] : sizes_) drop(size);
}

void BlockPool::serve(std::size_t nbytes, int more) {
  const std::lock_guard lock(mutex_);
  Size& size = sizes_[nbytes];
  size.most += more;
  if (size.most <= 0) drop(size);
}

void* BlockPool::take(std::size_t nbytes) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = sizes_.find(nbytes);
  if (found == sizes_.end()) return nullptr;
  Size& size = found->second;
  if (size.used >= size.most || size.refused) return nullptr;
  try {
    if (size.idle.empty()) size.idle.push_back(node_->at(node_->rank(), node_->allocate(nbytes)));
    void* const block = size.idle.back();
    used_.emplace(block, nbytes);
    size.idle.pop_back();
    ++size.used;
    return block;
  } catch (const std::exception&) {  // the arena or the machine is out of memory
    size.refused = true;
    return nullptr;
  }
}

bool BlockPool::give_back(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(block);
  if (found == used_.end()) return false;
  Size& size = sizes_.find(found->second)->second;
  used_.erase(found);
  --size.used;
  size.refused = false;
  try {
    size.idle.push_back(block);
  } catch (const std::bad_alloc&) {  // the list cannot grow: the block is lost
    return true;
  }
  if (size.most <= 0) drop(size);
  return true;
}

std::size_t BlockPool::in_use() const {
  const std::lock_guard lock(mutex_);
  return used_.size();
}

void BlockPool::drop(Size& size) {
  for (void* block : size.idle) node_->free(node_->offset_of(block, 1));
  size.idle.clear();
}

}  // namespace ringcomm
