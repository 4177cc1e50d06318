// A rank's heap in its arena. It knows which ranges are free, and which of these still have memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/at_fork.hpp"
#include "shm/arena.hpp"

namespace ringcomm {

// A set of addresses as disjoint ranges [begin, end); adjacent ranges are merged.
class Ranges {
 public:
  using Range = std::pair<std::uint64_t, std::uint64_t>;
  void add(Range range);
  void remove(Range range);
  bool contains(Range range) const;
  Range around(std::uint64_t address) const;  // the range that contains the address; it must exist
  std::optional<std::uint64_t> first_fit(std::uint64_t nbytes, std::uint64_t limit) const;
  std::uint64_t total() const { return total_; }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // begin -> end
  std::uint64_t total_ = 0;
};

class ArenaHeap {
 public:
  // `base` is the arena's address, and `reserve` the size of its address space in bytes. `limit`
  // returns how many of these bytes all ranks have mapped.
  ArenaHeap(FileHandle fd, std::byte* base, std::uint64_t reserve, std::function<std::uint64_t()> limit);
  std::uint64_t allocate(std::size_t nbytes);
  void free(std::uint64_t offset);
  std::size_t size_of(std::uint64_t offset);  // bytes allocated there; 0: none

 private:
  void become_private() noexcept;
  std::mutex mutex_;
  FileHandle fd_;
  std::byte* const base_;
  const std::uint64_t reserve_;
  bool forked_ = false;  // in a child of the arena's owner: allocated memory can be used, the rest not
  std::function<std::uint64_t()> limit_;
  std::map<std::uint64_t, std::uint64_t> used_;  // begin -> end
  Ranges free_;
  Ranges kept_;  // free ranges that have memory
  const AtFork fork_;
};

}  // namespace ringcomm
