// Reading the memory of another process of this host and user, where the kernel permits it: the one copy of
// what moves between arrays of which none is shared.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm {

// What a rank says of itself, so that others may find out whether they can read its memory, and that it is its own.
struct MemoryCard {
  std::int64_t pid = 0;
  std::uint64_t address = 0, secret = 0;  // where the secret lies, and what it is
};

class PeerMemory {
 public:
  PeerMemory();
  MemoryCard card() const;
  // Reads that rank's memory into this one's. False: it cannot be read (at present no part of it, or not any more).
  static bool read(const MemoryCard& card, std::uint64_t from, void* into, std::size_t nbytes);
  static bool readable(const MemoryCard& card);  // a system call; ask once

 private:
  const std::uint64_t secret_;
};

}  // namespace ringcomm
