// Implements the packing of blocks into messages, with and without a codec.
#include "executor/packing.hpp"

#include <cstring>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kLength = sizeof(std::uint64_t);

constexpr std::size_t padded(std::size_t nbytes) { return round_up(nbytes, kLength); }

}  // namespace

void Packing::open() {
  const std::vector<char>& kept = context_.encodings.kept;
  const auto room = [&](std::size_t b) {
    const std::size_t count = blocks_[static_cast<std::int32_t>(b)].count;
    return kept[b] && count > 0 ? aligned(codec_->capacity(count)) : 0;
  };
  kept_.assign(kept.size(), {});
  std::size_t all = 0;
  for (std::size_t b = 0; b < kept.size(); ++b) all += room(b);
  encodings_.require(all);
  std::byte* free = encodings_.data();
  for (std::size_t b = 0; b < kept.size(); ++b) {
    kept_[b].data = free;
    free += room(b);
  }
}

bool Packing::framed(const Message& message) const {
  int blocks = codec_ ? 0 : 2;
  for (std::uint32_t p = message.first; p < message.last && blocks < 2; ++p) blocks += blocks_.of_piece(p).count > 0;
  return codec_ && blocks > 1;
}

std::size_t Packing::capacity(const Message& message) const {
  const bool frames = framed(message);
  std::size_t total = 0;
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    const Extent& block = blocks_.of_piece(p);
    if (block.count == 0) continue;
    const std::size_t nbytes = codec_ ? codec_->capacity(block.count) : blocks_.bytes(block);
    total += frames ? kLength + padded(nbytes) : nbytes;
  }
  return total;
}

bool Packing::is_plain(const Message& message, Bytes& whole) const {
  whole = {};
  if (codec_) return false;
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    const Extent& block = blocks_.of_piece(p);
    if (block.count == 0) continue;
    if (whole.nbytes == 0) whole.data = block.data;
    if (whole.data + whole.nbytes != block.data) return false;
    whole.nbytes += blocks_.bytes(block);
  }
  return true;
}

Bytes Packing::pack(const Message& message, std::byte* to) {
  const bool frames = framed(message);
  Bytes whole{to, 0};
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    const Extent& block = blocks_.of_piece(p);
    std::byte* const end = to + whole.nbytes;
    if (block.count == 0) continue;
    if (!codec_) {
      kernels::copy(end, block.data, blocks_.bytes(block));
      whole.nbytes += blocks_.bytes(block);
    } else if (!frames) {
      whole.nbytes = encode(p, to);
      count_saved(blocks_.bytes(block), whole.nbytes);
    } else {
      const std::uint64_t nbytes = encode(p, end + kLength);
      count_saved(blocks_.bytes(block), kLength + padded(nbytes));
      std::memcpy(end, &nbytes, kLength);
      std::memset(end + kLength + nbytes, 0, padded(nbytes) - nbytes);
      whole.nbytes += kLength + padded(nbytes);
    }
  }
  return whole;
}

void Packing::count_saved(std::size_t whole, std::size_t encoded) {
  if (context_.options.encoding) context_.options.encoding->saved += whole - encoded;
}

std::size_t Packing::encode(std::uint32_t piece, std::byte* to) {
  const std::int32_t block = context_.program.pieces[piece];
  if (context_.encodings.again[piece]) {
    const Bytes& kept = kept_[static_cast<std::size_t>(block)];
    std::memcpy(to, kept.data, kept.nbytes);
    return kept.nbytes;
  }
  const std::size_t nbytes = encode_block(block, to);
  keep(block, {to, nbytes});
  return nbytes;
}

std::size_t Packing::encode_block(std::int32_t block, std::byte* to) {
  const Extent& its = blocks_[block];
  const RunOptions& options = context_.options;
  const CodecKey key{options.tensor, its.first, options.call_number, context_.transport.rank()};
  const std::size_t nbytes = codec_->encode(key, its.data, its.count, to);
  if (nbytes > codec_->capacity(its.count)) throw Error(ErrorKind::internal, "a codec wrote past its capacity");
  return nbytes;
}

void Packing::keep(std::int32_t block, Bytes encoded) {
  const auto index = static_cast<std::size_t>(block);
  if (!context_.encodings.kept[index]) return;
  std::memcpy(kept_[index].data, encoded.data, encoded.nbytes);
  kept_[index].nbytes = encoded.nbytes;
}

// Called at the end of a segment. No encoding is sent again then, so encodings_ may be overwritten.
void Packing::canonicalize(std::int32_t block) {
  if (blocks_[block].count == 0) return;
  encodings_.require(codec_->capacity(blocks_[block].count));
  encode_block(block, encodings_.data());
}

void Packing::unpack(const Message& message, Bytes arrived, std::span<Bytes> pieces) const {
  const bool frames = framed(message);
  std::size_t at = 0;
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    const Extent& block = blocks_.of_piece(p);
    if (block.count == 0) continue;
    std::uint64_t nbytes = codec_ ? arrived.nbytes : blocks_.bytes(block);
    if (frames) {
      const std::size_t left = arrived.nbytes - at;
      if (left >= kLength) std::memcpy(&nbytes, arrived.data + at, kLength);
      if (left < kLength || nbytes > left - kLength) {
        const int peer = context_.peer(message);
        throw Error(ErrorKind::mismatch,
                    concat("an encoded message of ", arrived.nbytes, " bytes from rank ", peer, " is truncated"),
                    {peer});
      }
      at += kLength;
    }
    pieces[p - message.first] = {arrived.data + at, nbytes};
    at += codec_ ? padded(nbytes) : nbytes;
  }
}

}  // namespace ringcomm
