// Implements the pool of staging buffers, in classes of powers of two.
#include "executor/staging.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace ringcomm {
namespace {

constexpr unsigned kSmallestClass = 8;
constexpr std::align_val_t kAlignment{64};

unsigned class_of(std::size_t nbytes) {
  return std::max(kSmallestClass, static_cast<unsigned>(std::bit_width(nbytes - 1)));
}

void release(std::byte* data) noexcept { ::operator delete(data, kAlignment); }

}  // namespace

StagingPool& staging_pool() {
  static auto* const pool = new StagingPool;
  return *pool;
}

std::byte* StagingPool::take(unsigned size_class) {
  {
    const std::lock_guard lock(mutex_);
    auto& idle = idle_[size_class];
    if (!idle.empty()) {
      std::byte* const data = idle.back();
      idle.pop_back();
      kept_ -= std::size_t{1} << size_class;
      return data;
    }
  }
  return static_cast<std::byte*>(::operator new(std::size_t{1} << size_class, kAlignment));
}

void StagingPool::give(std::byte* data, unsigned size_class) noexcept {
  const std::size_t nbytes = std::size_t{1} << size_class;
  try {
    const std::lock_guard lock(mutex_);
    if (kept_ + nbytes <= kMostKept) {
      idle_[size_class].push_back(data);
      kept_ += nbytes;
      return;
    }
  } catch (const std::bad_alloc&) {  // no memory for the list
  }
  release(data);
}

void StagingPool::leak(std::byte* data) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    leaked_.push_back(data);
  } catch (const std::bad_alloc&) {  // the buffer is leaked, which is what matters
  }
}

Staging::Staging(std::size_t nbytes) {
  if (nbytes == 0) return;
  size_class_ = class_of(nbytes);
  data_ = staging_pool().take(size_class_);
}

Staging::~Staging() {
  if (data_) staging_pool().give(data_, size_class_);
}

void Staging::leak() noexcept {
  if (data_) staging_pool().leak(std::exchange(data_, nullptr));
}

}  // namespace ringcomm
