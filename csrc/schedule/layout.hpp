// Maps the blocks of a schedule to memory: (block, segment) -> bytes. Schedules name blocks; only a
// layout has addresses. Data is cut into segments (base/cuts.hpp) so that several instances of one
// schedule can be in flight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "base/cuts.hpp"

namespace ringcomm {

struct Extent {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements
  std::size_t first = 0;  // index in the call's array
};

class Layout {
 public:
  using Where = std::function<Extent(std::size_t block, std::size_t segment)>;

  // Returns a layout of separate blocks, at any addresses and of any sizes.
  static Layout listed(std::size_t segments, std::size_t blocks, std::size_t item, Where where) {
    return Layout(segments, blocks, item, false, std::move(where));
  }
  // Returns a layout that splits each segment evenly into blocks. where(0, segment) is
  // the segment's extent.
  static Layout even(std::size_t segments, std::size_t blocks, std::size_t item, Where where) {
    return Layout(segments, blocks, item, true, std::move(where));
  }
  // Returns an even layout of one buffer, in segments of `each` elements (0: of one element).
  static Layout even(void* data, std::size_t count, int blocks, std::size_t item, std::size_t each) {
    each = std::max<std::size_t>(1, each);
    return even(cuts_in(count, each), static_cast<std::size_t>(blocks), item,
                [=](std::size_t, std::size_t k) { return cut(data, count, item, each, k); });
  }
  // Returns a layout of contiguous blocks. Each block is cut into segments of `each` elements.
  static Layout listed(std::vector<Extent> blocks, std::size_t item, std::size_t each) {
    each = std::max<std::size_t>(1, each);
    std::size_t segments = 1;
    for (const Extent& extent : blocks) segments = std::max(segments, cuts_in(extent.count, each));
    const std::size_t number = blocks.size();
    return listed(segments, number, item, [blocks = std::move(blocks), item, each](std::size_t block, std::size_t k) {
      const Extent& whole = blocks[block];
      Extent part = cut(whole.data, whole.count, item, each, k);
      part.first += whole.first;
      return part;
    });
  }

  std::size_t segments() const { return segments_; }  // at least one, so that an empty call still runs
  std::size_t blocks() const { return blocks_; }
  std::size_t item_size() const { return item_; }
  bool even() const { return even_; }

  Extent at(std::size_t block, std::size_t segment) const {
    if (!even_) return where_(block, segment);
    const Extent whole = this->segment(segment);
    const Part part = split(whole.count, blocks_, block);
    return {whole.data + part.first * item_, part.count, whole.first + part.first};
  }
  Extent segment(std::size_t index) const { return where_(0, index); }  // a complete segment; even layouts only

 private:
  Layout(std::size_t segments, std::size_t blocks, std::size_t item, bool even, Where where)
      : segments_(segments), blocks_(blocks), item_(item), even_(even), where_(std::move(where)) {}
  static Extent cut(void* data, std::size_t count, std::size_t item, std::size_t each, std::size_t k) {
    const Part part = cut_of(count, each, k);
    return {ringcomm::at(data, part.first * item), part.count, part.first};
  }

  std::size_t segments_, blocks_, item_;
  bool even_;
  Where where_;
};

}  // namespace ringcomm
