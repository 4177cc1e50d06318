// Implements ArenaRoom: allocates in the arena, or in ordinary memory if the arena is full.
#include "host_collectives/arena_room.hpp"

#include <bit>

#include "base/aligned_bytes.hpp"
#include "base/error.hpp"

namespace ringcomm {

void ArenaRoom::release() {
  if (offset_ != kPrivate) node_->free(offset_);
  offset_ = kPrivate;
  heap_.reset();
  data_ = nullptr;
  nbytes_ = 0;
}

std::byte* ArenaRoom::at_least(std::size_t nbytes) {
  if (nbytes <= nbytes_) return data_;
  release();
  const std::size_t rounded = std::bit_ceil(nbytes);
  if (node_) {
    try {
      offset_ = node_->allocate(rounded);
      data_ = node_->at(node_->rank(), offset_);
    } catch (const Error&) {
      node_.reset();  // the arena is full: from now on uses ordinary memory
    }
  }
  if (!data_) {
    heap_ = aligned_bytes(rounded);
    data_ = heap_.get();
  }
  nbytes_ = rounded;
  return data_;
}

}  // namespace ringcomm
