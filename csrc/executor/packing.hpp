// How a message looks on the wire. Without a codec: its blocks one after another. With one: an encoded block alone, or,
// of several blocks, each as 8 bytes of length and the encoded bytes padded to 8. Empty blocks take no space.
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
  void open();  // a segment, whose blocks have been opened

  std::size_t capacity(const Message& message) const;  // bytes of it; with a codec: the most
  // Whether it needs no packing: what it carries lies in one piece of memory.
  bool is_plain(const Message& message, Bytes& whole) const;
  Bytes pack(const Message& message, std::byte* to);
  // Where in a message that has come each of its pieces lies. Throws Error(mismatch) if it is cut short.
  void unpack(const Message& message, Bytes arrived, std::span<Bytes> pieces) const;

  // With a codec: a block that was written holds what its encoding decodes to, which is sent of it from then on.
  void keep(std::int32_t block, Bytes encoded);
  void keep_copy(std::int32_t block, std::int32_t source) { keep(block, kept_[static_cast<std::size_t>(source)]); }
  void settle(std::int32_t block);  // gives it the value that others got of it, or would have

 private:
  bool framed(const Message& message) const;
  std::size_t encode(std::uint32_t piece, std::byte* to);       // bytes of it
  std::size_t encode_block(std::int32_t block, std::byte* to);  // which then holds what that decodes to
  void count_saved(std::size_t whole, std::size_t encoded);

  const RunContext& context_;
  const SegmentBlocks& blocks_;
  Codec* const codec_;  // may be null
  Staging encodings_;
  std::vector<Bytes> kept_;  // by block, in encodings_: the last encoding of those that are sent again
};

}  // namespace ringcomm
