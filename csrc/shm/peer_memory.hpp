// Reads the memory of another process of this host and user, if the kernel permits it. Data between
// two arrays outside shared memory is then copied only once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm {

// Published by a rank, so that peers can test whether they can read its memory.
struct MemoryCard {
  std::int64_t pid = 0;
  std::uint64_t address = 0, secret = 0;  // address of the secret, and its value
};

class PeerMemory {
 public:
  PeerMemory();
  PeerMemory(const PeerMemory&) = delete;  // the card has its address
  MemoryCard card() const { return card_; }
  // Reads a peer's memory. Returns false if the memory cannot be read, completely or in part.
  static bool read(const MemoryCard& card, std::uint64_t from, void* into, std::size_t nbytes);
  static bool readable(const MemoryCard& card);  // costs a system call; call it once

 private:
  const std::uint64_t secret_;
  const MemoryCard card_;  // made once, because getpid() is a system call
};

}  // namespace ringcomm
