// A rank's heap in its arena: which addresses are free, and which of the free ones still have memory behind them.
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

// A set of addresses as disjoint ranges [begin, end); neighbours grow together.
class Ranges {
 public:
  using Range = std::pair<std::uint64_t, std::uint64_t>;
  void add(Range range);
  void remove(Range range);
  bool contains(Range range) const;
  Range around(std::uint64_t address) const;  // the range that holds it, which must exist
  std::optional<std::uint64_t> first_fit(std::uint64_t nbytes, std::uint64_t limit) const;
  std::uint64_t total() const { return total_; }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by begin
  std::uint64_t total_ = 0;
};

class ArenaHeap {
 public:
  // `base`: the arena, of so many bytes of address space. `limit` tells how far all ranks have it mapped.
  ArenaHeap(FileHandle fd, std::byte* base, std::uint64_t reserve, std::function<std::uint64_t()> limit);
  std::uint64_t allocate(std::size_t nbytes);
  void free(std::uint64_t offset);
  std::size_t size_of(std::uint64_t offset);  // of what is allocated there; 0: nothing is

 private:
  void become_private() noexcept;
  std::mutex mutex_;
  FileHandle fd_;
  std::byte* const base_;
  const std::uint64_t reserve_;
  bool forked_ = false;  // a child of the arena's owner: what was allocated can be used, the rest is not ours
  std::function<std::uint64_t()> limit_;
  std::map<std::uint64_t, std::uint64_t> used_;  // ends by begin
  Ranges free_;
  Ranges kept_;  // of the free ranges, those that have memory
  const AtFork fork_;
};

}  // namespace ringcomm
