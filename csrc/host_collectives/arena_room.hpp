// Provides a buffer for temporary arrays, which grows to the largest size requested. If the host's
// ranks share arenas, the buffer is in this rank's arena, so that calls work on it in place.
// Otherwise, or if the arena is full, it is in ordinary memory.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "shm/node.hpp"

namespace ringcomm {

class ArenaRoom {
 public:
  explicit ArenaRoom(std::shared_ptr<Node> node) : node_(std::move(node)) {}
  ~ArenaRoom() { release(); }
  ArenaRoom(const ArenaRoom&) = delete;
  ArenaRoom& operator=(const ArenaRoom&) = delete;
  std::byte* at_least(std::size_t nbytes);  // contents are lost if it grows

 private:
  void release();
  std::shared_ptr<Node> node_;
  std::uint64_t offset_ = kPrivate;
  std::shared_ptr<std::byte[]> heap_;
  std::byte* data_ = nullptr;
  std::size_t nbytes_ = 0;
};

}  // namespace ringcomm
