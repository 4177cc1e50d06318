// Implements the heap of an arena: first fit, with memory requested from the system on demand.
#include "shm/heap.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>

#include "base/error.hpp"

namespace ringcomm {
namespace {

// Freed memory up to kKept is kept for the next allocation, because new pages must be zeroed.
// Beyond that, ranges of at least kBig are returned to the system.
constexpr std::uint64_t kKept = std::uint64_t{64} << 20;
constexpr std::uint64_t kBig = std::uint64_t{1} << 20;

}  // namespace

void Ranges::add(Range range) {
  auto [begin, end] = range;
  total_ += end - begin;
  auto next = ends_.lower_bound(begin);
  if (next != ends_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second == begin) {
      begin = previous->first;
      ends_.erase(previous);
    }
  }
  if (next != ends_.end() && next->first == end) {
    end = next->second;
    ends_.erase(next);
  }
  ends_[begin] = end;
}

void Ranges::remove(Range range) {
  auto at = ends_.upper_bound(range.first);
  if (at != ends_.begin()) --at;
  while (at != ends_.end() && at->first < range.second) {
    const auto [begin, end] = *at;
    if (end <= range.first) {
      ++at;
      continue;
    }
    at = ends_.erase(at);
    total_ -= std::min(end, range.second) - std::max(begin, range.first);
    if (begin < range.first) ends_[begin] = range.first;
    if (range.second < end) ends_[range.second] = end;
  }
}

bool Ranges::contains(Range range) const {
  const auto next = ends_.upper_bound(range.first);
  return next != ends_.begin() && std::prev(next)->second >= range.second;
}

Ranges::Range Ranges::around(std::uint64_t address) const { return *std::prev(ends_.upper_bound(address)); }

std::optional<std::uint64_t> Ranges::first_fit(std::uint64_t nbytes, std::uint64_t limit) const {
  for (const auto& [begin, end] : ends_) {
    if (begin >= limit) break;
    if (std::min(end, limit) - begin >= nbytes) return begin;
  }
  return std::nullopt;
}

ArenaHeap::ArenaHeap(FileHandle fd, std::byte* base, std::uint64_t reserve, std::function<std::uint64_t()> limit)
    : fd_(std::move(fd)), base_(base), reserve_(reserve), limit_(std::move(limit)),
      fork_(2, {[this] { mutex_.lock(); }, [this] { mutex_.unlock(); }, [this] { become_private(); }}) {
  if (reserve > kHeapBegin) free_.add({kHeapBegin, reserve});
}

// Maps a private copy in a forked child, after Mappings has made all arenas unusable. The child may
// use arrays that are stored in this one. They keep their addresses, and the child's writes stay
// private.
void ArenaHeap::become_private() noexcept {
  forked_ = true;
  ::mmap(base_, reserve_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, fd_.get(), 0);
}

std::uint64_t ArenaHeap::allocate(std::size_t nbytes) {
  const std::string wanted = std::to_string(nbytes) + " bytes of shared memory";
  const bool absurd = nbytes > std::numeric_limits<std::size_t>::max() / 2;
  const std::uint64_t size = absurd ? nbytes : round_up(std::max<std::size_t>(nbytes, 1), kPage);
  const std::lock_guard lock(mutex_);
  if (forked_) throw invalid("cannot allocate ", wanted, " in a forked process");
  const std::uint64_t limit = limit_();  // reads all ranks' arenas, which a forked process cannot
  const auto begin = free_.first_fit(size, limit);
  if (!begin) {
    throw invalid("cannot allocate ", wanted, ": the ", limit,
                  " bytes of address space reserved for it have no free range of this size");
  }
  const Ranges::Range piece{*begin, *begin + size};
  if (!kept_.contains(piece)) {
    if (const int error = back_with_memory(fd_.get(), piece.first, piece.second); error != 0) {
      kept_.remove(piece);
      throw invalid("the system refused ", wanted, ": ", std::strerror(error));
    }
  }
  free_.remove(piece);
  kept_.remove(piece);
  used_[piece.first] = piece.second;
  return piece.first;
}

std::size_t ArenaHeap::size_of(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(offset);
  return found == used_.end() ? 0 : found->second - found->first;
}

void ArenaHeap::free(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  if (forked_) return;
  const auto found = used_.find(offset);
  if (found == used_.end())
    throw Error(ErrorKind::internal, concat("offset ", offset, " of this rank's shared memory is not allocated"));
  free_.add(*found);
  kept_.add(*found);
  used_.erase(found);
  const Ranges::Range idle = kept_.around(offset);
  if (kept_.total() <= kKept || idle.second - idle.first < kBig) return;
  if (give_memory_back(fd_.get(), idle.first, idle.second)) kept_.remove(idle);
}

}  // namespace ringcomm
