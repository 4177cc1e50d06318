// Memory of the host that lies between a device and the host's calls: in the host's arena if ranks share one, so that
// nothing is copied there once more, and pinned, so that the device copies by itself.
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
    std::shared_ptr<const Event> left;  // its last copy to the device; null: none is under way
  };
  // So many slots of so many bytes at least. Waits for copies under way if it has to make other ones. `device`: null
  // for a rank that has none.
  std::vector<Slot>& slots(std::size_t count, std::size_t nbytes, Device* device);
  void strand() noexcept;  // its memory is never used again: copies may be under way that never end

 private:
  void release() noexcept;  // for the room to go, or to be another

  const std::shared_ptr<Node> node_;
  std::unique_ptr<ArenaRoom> room_;
  std::size_t slot_bytes_ = 0;
  Device* pinned_by_ = nullptr;
  std::vector<Slot> slots_;
};

}  // namespace ringcomm
