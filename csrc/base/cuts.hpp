// Defines how arrays are cut. All code that works on an array piece by piece uses these terms:
//
//   array      |--------- block 0 ---------|---- block 1 ----|------ block 2 ------|
//   cuts       |  0   |  1   |  2   |  3   |  0   |  1   | 2 |  0   |  1   |  2   ||   `each` elements; the last: fewer
//   segment 1         |  1   |             +      |  1   |   +      |  1   |           cut 1 of each block, in flight
//   stored as  | 1 of block 0 | 1 of block 1 | 1 of block 2 |                          in slots of `each` elements
//   slices     | a | b | c |                                                           of a cut, for ranks a, b, c
//
// A block is the part of one rank (or one host) in an all-gather, a reduce-scatter or an
// all-to-all. In other collectives the array is one block. The array may be stored in several
// pieces of memory: Stretches describes them, and a Layout (schedule/layout.hpp) gives the
// addresses of the blocks of a schedule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace ringcomm {

inline constexpr std::size_t kLine = 64;  // bytes of a cache line

inline constexpr std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }
inline std::byte* at(void* base, std::size_t bytes) { return static_cast<std::byte*>(base) + bytes; }
inline const std::byte* at(const void* base, std::size_t bytes) { return static_cast<const std::byte*>(base) + bytes; }

struct Part {
  std::size_t first = 0, count = 0;
  constexpr std::size_t end() const { return first + count; }
};

// Returns part `index` of `count` elements, split evenly into `parts`. Sizes differ by at most one
// unit; the last part may be short.
inline constexpr Part split(std::size_t count, std::size_t parts, std::size_t index, std::size_t unit = 1) {
  const std::size_t units = count / unit + (count % unit != 0), base = units / parts, rest = units % parts;
  const std::size_t first = index * base + std::min(index, rest), last = first + base + (index < rest ? 1 : 0);
  const std::size_t begin = std::min(count, first * unit);
  return {begin, std::min(count, last * unit) - begin};
}
// Returns a rank's slice in complete cache lines, counted from the array's start, so that no two
// ranks write to one line.
inline constexpr Part slice_of(std::size_t count, std::size_t item, int ranks, int rank) {
  return split(count, static_cast<std::size_t>(ranks), static_cast<std::size_t>(rank), kLine / item);
}

// cut_of() returns cut k of `count` elements that are cut every `each` elements. cuts_in() returns
// the number of cuts: at least one, so that empty calls run too.
inline constexpr Part cut_of(std::size_t count, std::size_t each, std::size_t k) {
  const std::size_t first = std::min(count, k * each);
  return {first, std::min(each, count - first)};
}
inline constexpr std::size_t cuts_in(std::size_t count, std::size_t each) {
  return std::max<std::size_t>(1, count / each + (count % each != 0));
}
// Returns the number of elements of a cut: a multiple of a cache line, for which a segment (one cut
// of every block) has about `segment_bytes` bytes.
inline constexpr std::size_t cut_for(std::size_t segment_bytes, std::size_t item, std::size_t blocks = 1) {
  return std::max<std::size_t>(1, segment_bytes / blocks / kLine) * (kLine / item);
}

// total() returns the number of elements of all blocks, start_of() that of the blocks before
// `block`.
inline std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}
inline std::size_t start_of(const std::vector<std::size_t>& counts, int block) {
  return std::accumulate(counts.begin(), counts.begin() + block, std::size_t{0});
}

// Consecutive blocks and their cuts. All numbers are in elements.
class Cuts {
 public:
  Cuts(std::size_t count, std::size_t each)  // one block
      : each_(each), longest_(count), segments_(cuts_in(count, each)) {}
  Cuts(std::vector<std::size_t> counts, std::size_t each) : counts_(std::move(counts)), each_(each) {
    starts_.reserve(counts_.size());
    std::size_t first = 0;
    for (const std::size_t count : counts_) {
      starts_.push_back(first);
      first += count;
      longest_ = std::max(longest_, count);
    }
    segments_ = cuts_in(longest_, each);
  }
  std::size_t blocks() const { return counts_.empty() ? 1 : counts_.size(); }
  std::size_t each() const { return each_; }
  std::size_t longest() const { return longest_; }  // elements of the longest block
  std::size_t count(std::size_t block) const { return counts_.empty() ? longest_ : counts_[block]; }
  std::size_t start(std::size_t block) const { return starts_.empty() ? 0 : starts_[block]; }
  std::size_t segments() const { return segments_; }
  std::size_t longest_cut() const { return std::min(each_, longest_); }

  Part cut(std::size_t block, std::size_t k) const {  // in the array
    const Part part = cut_of(count(block), each_, k);
    return {start(block) + part.first, part.count};
  }
  Part cut(std::size_t k) const { return cut_of(longest_, each_, k); }  // relative to the start of its block

  // slot() returns the start of a block's cut in a segment; segment(), the length of a segment.
  std::size_t slot(std::size_t block) const { return block * each_; }
  std::size_t segment() const { return slot(blocks() - 1) + longest_cut(); }

 private:
  std::vector<std::size_t> counts_, starts_;  // empty: one block
  std::size_t each_, longest_ = 0, segments_ = 1;
};

// An array that is stored in several consecutive pieces of memory. All numbers are in elements.
class Stretches {
 public:
  void add(std::size_t count) { ends_.push_back(total() + count); }  // without any add(): one unbounded stretch
  std::size_t total() const { return ends_.empty() ? 0 : ends_.back(); }

  // Calls act(index, first, done, count) for each stretch that holds elements of `part`: `count`
  // elements from element `first` of the stretch on. `done`: elements of `part` in earlier
  // stretches.
  template <class Act>
  void each(Part part, Act act) const {
    if (ends_.empty()) {
      if (part.count > 0) act(std::size_t{0}, part.first, std::size_t{0}, part.count);
      return;
    }
    // the first stretch that ends after part.first; empty stretches there are skipped
    auto end = std::upper_bound(ends_.begin(), ends_.end(), part.first);
    for (std::size_t done = 0; done < part.count; ++end) {
      const auto index = static_cast<std::size_t>(end - ends_.begin());
      const std::size_t first = part.first + done, count = std::min(part.end(), *end) - first;
      if (count > 0) act(index, first - (index == 0 ? 0 : ends_[index - 1]), done, count);
      done += count;
    }
  }

 private:
  std::vector<std::size_t> ends_;
};

}  // namespace ringcomm
