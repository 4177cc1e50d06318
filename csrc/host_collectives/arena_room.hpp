// Room for arrays on their way: in the host's arena if ranks share one, so that calls work on it where it lies, else in
// ordinary memory. Kept, and grown to the largest asked for.
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
  std::byte* at_least(std::size_t nbytes);  // what was there is lost if it has to grow

 private:
  void release();
  std::shared_ptr<Node> node_;
  std::uint64_t offset_ = kPrivate;
  std::shared_ptr<std::byte[]> heap_;
  std::byte* data_ = nullptr;
  std::size_t nbytes_ = 0;
};

}  // namespace ringcomm
