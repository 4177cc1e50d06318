#include "device/stage.hpp"

#include <algorithm>
#include <bit>

#include "base/aligned_bytes.hpp"
#include "base/cuts.hpp"
#include "base/error.hpp"

namespace ringcomm {

namespace {
constexpr std::size_t kPage = 4096;
}

std::vector<Stage::Slot>& Stage::slots(std::size_t count, std::size_t nbytes, Device* device) {
  const std::size_t each = round_up(std::max<std::size_t>(1, nbytes), kPage);
  if (count <= slots_.size() && each <= slot_bytes_) return slots_;
  const std::size_t slots = std::max(count, slots_.size()), larger = std::max(std::bit_ceil(each), slot_bytes_);
  release();
  data_ = take(slots * larger);
  nbytes_ = slots * larger;
  slot_bytes_ = larger;
  if (device && device->pin(data_, nbytes_)) pinned_by_ = device;
  for (std::size_t i = 0; i < slots; ++i) slots_.push_back({data_ + i * larger, nullptr});
  return slots_;
}

std::byte* Stage::take(std::size_t nbytes) {
  if (node_) {
    try {
      offset_ = node_->allocate(nbytes);
      return node_->at(node_->rank(), offset_);
    } catch (const Error&) {
      node_.reset();  // no room in the arena: from now on ordinary memory, which calls stage once more
    }
  }
  heap_ = aligned_bytes(nbytes);
  return heap_.get();
}

void Stage::release() noexcept {
  for (const Slot& slot : slots_) {
    if (slot.left) slot.left->wait();
  }
  slots_.clear();
  if (pinned_by_) pinned_by_->unpin(data_);
  pinned_by_ = nullptr;
  if (offset_ != kPrivate) node_->free(offset_);
  offset_ = kPrivate;
  heap_.reset();
}

}  // namespace ringcomm
