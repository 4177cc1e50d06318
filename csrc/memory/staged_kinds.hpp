// What the staged collectives have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "memory/staged_pass.hpp"

namespace ringcomm {

inline std::byte* at(void* base, std::size_t bytes) { return static_cast<std::byte*>(base) + bytes; }
inline const std::byte* at(const void* base, std::size_t bytes) { return static_cast<const std::byte*>(base) + bytes; }
inline std::size_t pieces(std::size_t count, std::size_t each) { return count / each + (count % each != 0); }

inline bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  return a && b && a_bytes > 0 && b_bytes > 0 && first < second + b_bytes && second < first + a_bytes;
}

// Whether stores to a rank's result may hit parts of its input that are yet to be read, so that it needs a copy of
// these. A reduce-scatter's result may take the place of its own block, of which every element is read before it is
// written.
inline bool overwrites_input(const Call& call, int rank) {
  const std::size_t item = size_of(call.dtype), given = total(call.counts) * item;
  if (call.collective == Collective::alltoall)
    return overlap(call.input, given, call.output, total(call.receive_counts) * item);
  if (call.collective != Collective::reducescatter) return false;
  const auto mine = call.counts.begin() + rank;
  const std::size_t before = std::accumulate(call.counts.begin(), mine, std::size_t{0}) * item;
  return overlap(call.input, given, call.output, *mine * item) && call.output != at(call.input, before);
}

// The input, or a copy of it where one is needed.
class KeptInput {
 public:
  KeptInput(const Call& call, int rank) : input_(call.input) {
    if (!overwrites_input(call, rank)) return;
    const std::size_t nbytes = total(call.counts) * size_of(call.dtype);
    copy_ = std::make_unique_for_overwrite<std::byte[]>(nbytes);
    std::memcpy(copy_.get(), call.input, nbytes);
    input_ = copy_.get();
  }
  const std::byte* from(std::size_t byte) const { return at(input_, byte); }

 private:
  const void* input_;
  std::unique_ptr<std::byte[]> copy_;
};

// An array of one block per rank, and segments that hold a cut of every block: cut k of each, side by side.
class Cuts {
 public:
  Cuts(const std::vector<std::size_t>& counts, std::size_t item, int ranks, std::size_t segment_bytes)
      : counts_(counts), item_(item) {
    const std::size_t bytes = std::max(segment_bytes / static_cast<std::size_t>(ranks) / kLine, std::size_t{1}) * kLine;
    each_ = std::max<std::size_t>(1, bytes / item_);
    starts_.reserve(counts.size());
    std::size_t first = 0;
    for (const std::size_t count : counts) {
      starts_.push_back(first);
      first += count;
      longest_ = std::max(longest_, count);
    }
  }
  std::size_t longest() const { return longest_; }
  std::size_t number() const { return number_of(longest_); }
  std::size_t number_of(std::size_t longest) const { return std::max<std::size_t>(1, pieces(longest, each_)); }
  std::size_t start(int rank) const { return starts_[static_cast<std::size_t>(rank)]; }
  Part cut(int rank, std::size_t k) const {  // elements of the array
    const std::size_t count = counts_[static_cast<std::size_t>(rank)], first = std::min(count, k * each_);
    return {start(rank) + first, std::min(each_, count - first)};
  }
  std::size_t place(int rank) const {
    return static_cast<std::size_t>(rank) * each_ * item_;
  }  // in a segment, in bytes
  std::size_t bytes() const { return starts_.size() * each_ * item_; }  // of a segment

 private:
  std::vector<std::size_t> counts_, starts_;
  std::size_t item_, each_ = 1, longest_ = 0;  // elements of a cut, of the longest block
};

std::unique_ptr<StagedPass> make_moving_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes);

}  // namespace ringcomm
