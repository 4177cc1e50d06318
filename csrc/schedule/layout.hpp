// Where blocks lie: (block, segment) -> bytes. Schedules name blocks; only a layout knows memory.
// A buffer is cut into segments so that several instances of one schedule can be in flight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace ringcomm {

struct Extent {
  std::byte* data = nullptr;
  std::size_t count = 0;  // elements
};

class Layout {
 public:
  // One buffer, cut into segments of `segment` elements, each split evenly into `blocks` blocks.
  static Layout even(void* data, std::size_t count, int blocks, std::size_t item_size, std::size_t segment) {
    Layout layout(item_size, segment);
    layout.even_ = true;
    layout.blocks_ = static_cast<std::size_t>(blocks);
    layout.extents_ = {{static_cast<std::byte*>(data), count}};
    layout.segments_ = pieces(count, segment);
    return layout;
  }
  // Blocks anywhere and of any size; each is cut into segments of `segment` elements of its own.
  static Layout listed(std::vector<Extent> blocks, std::size_t item_size, std::size_t segment) {
    Layout layout(item_size, segment);
    layout.blocks_ = blocks.size();
    layout.extents_ = std::move(blocks);
    for (const Extent& e : layout.extents_) layout.segments_ = std::max(layout.segments_, pieces(e.count, segment));
    return layout;
  }

  // Each segment lies by itself, split evenly into `blocks` blocks.
  static Layout placed(std::vector<Extent> segments, int blocks, std::size_t item_size) {
    Layout layout(item_size, 1);
    layout.even_ = layout.placed_ = true;
    layout.blocks_ = static_cast<std::size_t>(blocks);
    layout.segments_ = segments.size();
    layout.extents_ = std::move(segments);
    return layout;
  }

  // Blocks that lie somewhere else in every segment: find(block, segment) says where.
  static Layout found(std::size_t segments, int blocks, std::size_t item_size,
                      std::function<Extent(std::size_t, std::size_t)> find) {
    Layout layout(item_size, 1);
    layout.blocks_ = static_cast<std::size_t>(blocks);
    layout.segments_ = segments;
    layout.find_ = std::move(find);
    return layout;
  }

  std::size_t segments() const { return segments_; }  // at least one, so that an empty call still runs
  std::size_t blocks() const { return blocks_; }
  std::size_t item_size() const { return item_size_; }
  void require_segments(std::size_t at_least) { segments_ = std::max(segments_, at_least); }  // agreed over ranks

  Extent at(std::size_t block, std::size_t segment) const {
    if (even_) {
      const Extent whole = this->segment(segment);
      const Part part = split(whole.count, blocks_, block);
      return {whole.data + part.first * item_size_, part.count};
    }
    return find_ ? find_(block, segment) : cut(extents_[block], segment);
  }
  // The whole of a segment; even layouts only.
  Extent segment(std::size_t index) const { return placed_ ? extents_[index] : cut(extents_[0], index); }
  bool even() const { return even_; }

 private:
  Layout(std::size_t item_size, std::size_t segment) : item_size_(item_size), segment_(segment ? segment : 1) {}
  static std::size_t pieces(std::size_t count, std::size_t segment) {
    segment = segment ? segment : 1;
    return std::max<std::size_t>(1, count / segment + (count % segment != 0));
  }
  Extent cut(const Extent& e, std::size_t index) const {
    const std::size_t first = std::min(e.count, index * segment_);
    return {e.data + first * item_size_, std::min(segment_, e.count - first)};
  }

  std::size_t item_size_, segment_, segments_ = 1, blocks_ = 0;
  bool even_ = false, placed_ = false;
  std::vector<Extent> extents_;
  std::function<Extent(std::size_t, std::size_t)> find_;
};

}  // namespace ringcomm
