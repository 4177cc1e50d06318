// Defines the layout of a message. Without a codec a message holds its blocks one after another.
// With a codec, a message of one block holds the encoded block. If there are several blocks, each
// encoded block is preceded by 8 bytes with its length, and padded to 8 bytes. Empty blocks take no
// space.
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
  void open();  // begins a segment, for which `blocks` must be open

  std::size_t capacity(const Message& message) const;  // bytes of the message; with a codec: an upper bound
  // Returns true if the blocks are adjacent in memory, so that the message needs no packing.
  // `whole` is then the memory of the message.
  bool is_plain(const Message& message, Bytes& whole) const;
  Bytes pack(const Message& message, std::byte* to);
  // Finds the address of each piece in a received message. Throws Error(mismatch) if truncated.
  void unpack(const Message& message, Bytes arrived, std::span<Bytes> pieces) const;

  // With a codec: records that a block now holds the decoded value of `encoded`. Later sends of the
  // block send these bytes.
  void keep(std::int32_t block, Bytes encoded);
  void keep_copy(std::int32_t block, std::int32_t source) { keep(block, kept_[static_cast<std::size_t>(source)]); }
  void canonicalize(std::int32_t block);  // replaces the block by its decoded encoding, as other ranks have it

 private:
  bool framed(const Message& message) const;
  std::size_t encode(std::uint32_t piece, std::byte* to);       // returns the bytes written
  std::size_t encode_block(std::int32_t block, std::byte* to);  // the block then holds the decoded value
  void count_saved(std::size_t whole, std::size_t encoded);

  const RunContext& context_;
  const SegmentBlocks& blocks_;
  Codec* const codec_;  // may be null
  Staging encodings_;
  std::vector<Bytes> kept_;  // by block: its last encoding, in encodings_, if it is sent again
};

}  // namespace ringcomm
