// Defines the memory layout of an arena, and maps arenas into this process. Node is built on it.
//
//   mailboxes, one per slot | header | heap, 4096-byte aligned, growing by fallocate | address space not backed yet ...
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/at_fork.hpp"
#include "base/cuts.hpp"
#include "shm/doorbell.hpp"
#include "shm/file_handle.hpp"
#include "shm/node.hpp"

namespace ringcomm {

inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kSmallestReserve = std::size_t{1} << 30;  // address space; every rank can map this much

struct ArenaHeader {
  std::uint64_t magic;
  // Bytes of every arena that this arena's owner has mapped; 0: not mapped yet. A heap grows only
  // as far as all ranks have mapped its arena.
  std::atomic<std::uint64_t> mapped;
  Doorbell doorbell;
};

inline constexpr std::size_t kHeaderOffset = round_up(sizeof(Mailbox) * kMailboxes, 64);
inline constexpr std::size_t kHeapBegin = round_up(kHeaderOffset + sizeof(ArenaHeader), kPage);

inline ArenaHeader& header_of(std::byte* base) { return *reinterpret_cast<ArenaHeader*>(base + kHeaderOffset); }

// The arenas of a host in this process's address space. All mappings have the same size. If one
// cannot be mapped, none is.
class Mappings {
 public:
  Mappings(const std::vector<int>& fds, std::size_t reserve);  // throws Error(invalid)
  ~Mappings();
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;
  const std::vector<std::byte*>& bases() const { return bases_; }
  std::size_t nbytes() const { return nbytes_; }  // size of each

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20, kHashed = std::size_t{1} << 28, kRoom = 2 * kHashed;
  bool map_all(const std::vector<int>& fds, std::size_t nbytes);
  void unmap_all();
  void leave_to_parent() noexcept;
  std::mutex mutex_;
  std::vector<void*> rooms_;  // reserved address space, one range per arena
  std::vector<std::byte*> bases_;
  std::size_t nbytes_ = 0;
  const AtFork fork_;
};

// Allocates memory for [begin, end) of the file, so that touching it cannot fail. Returns 0, or an
// errno. After an error no part of the range has memory.
int back_with_memory(int fd, std::uint64_t begin, std::uint64_t end);
bool give_memory_back(int fd, std::uint64_t begin, std::uint64_t end);  // the range reads as zeros until backed again

}  // namespace ringcomm
