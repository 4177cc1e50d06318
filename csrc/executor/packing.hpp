// Defines the layout of a message. Without a codec it holds its blocks one after another. With a
// codec it holds one encoded block. If there are several, each has 8 bytes of length before it and
// is padded to 8 bytes. Empty blocks take no space.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/segment_blocks.hpp"

namespace ringcomm {

struct Bytes {
  std::byte* data = nullptr;
  std::size_t nbytes = 0;
};

class Packing {
 public:
  Packing(const RunContext& context, const SegmentBlocks& blocks)
      : context_(context), blocks_(blocks), codec_(context.options.codec.get()) {}
  void open();  // begins a segment; its blocks must be open

  std::size_t capacity(const Message& message) const;  // bytes of the message; with a codec: an upper bound
  // Returns whether the message needs no packing, because its blocks are adjacent in memory.
  bool is_plain(const Message& message, Bytes& whole) const;
  Bytes pack(const Message& message, std::byte* to);
  // Finds the address of each piece in a received message. Throws Error(mismatch) if the message is
  // truncated.
  void unpack(const Message& message, Bytes arrived, std::span<Bytes> pieces) const;

  // With a codec: records that a written block holds the decoded value of `encoded`, which is sent
  // for it from now on.
  void keep(std::int32_t block, Bytes encoded);
  void keep_copy(std::int32_t block, std::int32_t source) { keep(block, kept_[static_cast<std::size_t>(source)]); }
  void settle(std::int32_t block);  // replaces its value by the decoded value that receivers have

 private:
  bool framed(const Message& message) const;
  std::size_t encode(std::uint32_t piece, std::byte* to);       // returns the bytes written
  std::size_t encode_block(std::int32_t block, std::byte* to);  // the block then holds the decoded value
  void count_saved(std::size_t whole, std::size_t encoded);

  const RunContext& context_;
  const SegmentBlocks& blocks_;
  Codec* const codec_;  // may be null
  Staging encodings_;
  std::vector<Bytes> kept_;  // by block, stored in encodings_: the last encoding, if it is sent again
};

}  // namespace ringcomm
