// Provides staging memory on the host for copies from and to a device. If ranks share memory, the
// staging memory is in this rank's arena, so that host calls need no further copy. The staging
// memory is pinned, so that the device copies asynchronously.
#pragma once

#include <memory>
#include <vector>

#include "device/device.hpp"
#include "host_collectives/arena_room.hpp"

namespace ringcomm {

class Stage {
 public:
  explicit Stage(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  ~Stage() { release(); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  struct Slot {
    std::byte* data = nullptr;
    std::shared_ptr<const Event> left;  // its last copy to the device; null if that has finished
  };
  // Returns at least `count` slots of at least `nbytes` bytes. If it must replace the slots, waits
  // for copies in progress. `device`: null for a rank without one.
  std::vector<Slot>& slots(std::size_t count, std::size_t nbytes, Device* device);
  void leak() noexcept;  // never reuses its memory: copies may be under way that never end

 private:
  void release() noexcept;  // frees the slots, before the room is freed or grows

  const std::shared_ptr<Node> node_;
  std::unique_ptr<ArenaRoom> room_;
  std::size_t slot_bytes_ = 0;
  Device* pinned_by_ = nullptr;
  std::vector<Slot> slots_;
};

}  // namespace ringcomm
