// Implements the staging memory.
#include "device/stage.hpp"

#include <algorithm>
#include <bit>

#include "base/cuts.hpp"

namespace ringcomm {

namespace {
constexpr std::size_t kPage = 4096;
}

std::vector<Stage::Slot>& Stage::slots(std::size_t count, std::size_t nbytes, Device* device) {
  const std::size_t each = round_up(std::max<std::size_t>(1, nbytes), kPage);
  if (count <= slots_.size() && each <= slot_bytes_) return slots_;
  const std::size_t slots = std::max(count, slots_.size()), larger = std::max(std::bit_ceil(each), slot_bytes_);
  release();
  if (!room_) room_ = std::make_unique<ArenaRoom>(node_);
  std::byte* const data = room_->at_least(slots * larger);
  slot_bytes_ = larger;
  if (device && device->pin(data, slots * larger)) pinned_by_ = device;
  for (std::size_t i = 0; i < slots; ++i) slots_.push_back({data + i * larger, nullptr});
  return slots_;
}

void Stage::leak() noexcept {
  static_cast<void>(room_.release());
  pinned_by_ = nullptr;
  slots_.clear();
  slot_bytes_ = 0;
}

void Stage::release() noexcept {
  if (!std::ranges::all_of(slots_, [](const Slot& slot) { return !slot.left || slot.left->try_synchronize(); })) leak();
  if (pinned_by_) pinned_by_->unpin(slots_.front().data);
  pinned_by_ = nullptr;
  slots_.clear();
}

}  // namespace ringcomm
