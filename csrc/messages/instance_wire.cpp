// How a message looks on the wire. Without a codec: its blocks one after another. With one: an encoded block alone, or,
// of several blocks, each as 8 bytes of length and the encoded bytes padded to 8. Empty blocks take no space.
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "messages/instance.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kLength = sizeof(std::uint64_t);

constexpr std::size_t padded(std::size_t nbytes) { return round_up(nbytes, kLength); }

}  // namespace

bool Instance::alone(const Message& message) const {
  int blocks = 0;
  for (std::uint32_t p = message.first; p < message.last && blocks < 2; ++p) blocks += extent_of(p).count > 0;
  return blocks < 2;
}

std::size_t Instance::wire_bytes(const Message& message) const {
  const Codec* const codec = context_.options.codec.get();
  const bool framed = codec && !alone(message);
  std::size_t total = 0;
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    const Extent& block = extent_of(p);
    if (block.count == 0) continue;
    const std::size_t nbytes = codec ? codec->capacity(block.count) : bytes_of(block);
    total += framed ? kLength + padded(nbytes) : nbytes;
  }
  return total;
}

// Whether the blocks of a message follow one another in memory.
bool Instance::contiguous(const Message& message, Bytes& whole) const {
  whole = {};
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    const Extent& block = extent_of(p);
    if (block.count == 0) continue;
    if (whole.nbytes == 0) whole.data = block.data;
    if (whole.data + whole.nbytes != block.data) return false;
    whole.nbytes += bytes_of(block);
  }
  return true;
}

Instance::Bytes Instance::pack(const Message& message, std::byte* to) const {
  Bytes packed{to, 0};
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    const Extent& block = extent_of(p);
    if (block.count > 0) kernels::copy(to + packed.nbytes, block.data, bytes_of(block));
    packed.nbytes += bytes_of(block);
  }
  return packed;
}

// A block that goes to several peers is encoded once.
Instance::Bytes Instance::encode_piece(std::uint32_t piece, std::byte* to, bool copy_twin) {
  const std::uint32_t first = program(round_).first_sent_piece;
  const std::uint32_t twin = context_.program.pieces[piece].twin;
  Bytes& result = encoded_[piece - first];
  if (twin != piece) {
    result = encoded_[twin - first];
    if (copy_twin) {
      std::memcpy(to, result.data, result.nbytes);
      result.data = to;
    }
    return result;
  }
  const std::int32_t block = context_.program.pieces[piece].block;
  if (context_.encodings.again[piece]) {
    const Bytes& kept = kept_[static_cast<std::size_t>(block)];
    std::memcpy(to, kept.data, kept.nbytes);
    return result = {to, kept.nbytes};
  }
  result = {to, encode_block(block, to)};
  keep(block, result);
  return result;
}

std::size_t Instance::encode_block(std::int32_t block, std::byte* to) {
  Codec& codec = *context_.options.codec;
  const Extent& its = extent(block);
  const std::size_t nbytes = codec.encode({context_.options.tensor, segment_, block}, its.data, its.count, to);
  if (nbytes > codec.capacity(its.count)) throw Error(ErrorKind::internal, "a codec wrote past its capacity");
  codec.decode(to, nbytes, its.data, its.count);
  return nbytes;
}

void Instance::keep(std::int32_t block, Bytes encoded) {
  const auto index = static_cast<std::size_t>(block);
  if (!context_.encodings.kept[index]) return;
  std::memcpy(kept_[index].data, encoded.data, encoded.nbytes);
  kept_[index].nbytes = encoded.nbytes;
}

Instance::Bytes Instance::encode(const Message& message, std::byte* to) {
  const bool framed = !alone(message);
  Bytes whole{to, 0};
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    if (extent_of(p).count == 0) continue;
    if (!framed) return encode_piece(p, to, false);
    const std::uint64_t nbytes = encode_piece(p, to + whole.nbytes + kLength, true).nbytes;
    std::memcpy(to + whole.nbytes, &nbytes, kLength);
    const std::size_t padding = padded(nbytes) - nbytes;
    std::memset(to + whole.nbytes + kLength + nbytes, 0, padding);
    whole.nbytes += kLength + padded(nbytes);
  }
  return whole;
}

void Instance::find_pieces(Stage& stage, std::uint32_t index) const {
  const RoundProgram& round = program(round_);
  const Message& message = context_.program.messages[round.first_receive + index];
  const Incoming& incoming = stage.incoming[index];
  const bool framed = !alone(message);
  std::size_t at = 0;
  for (std::uint32_t p = message.first; p < message.last; ++p) {
    if (extent_of(p).count == 0) continue;
    std::uint64_t nbytes = incoming.arrived;
    if (framed) {
      const std::size_t left = incoming.arrived - at;
      if (left >= kLength) std::memcpy(&nbytes, incoming.data + at, kLength);
      if (left < kLength || nbytes > left - kLength) {
        const int peer = context_.peers[static_cast<std::size_t>(message.peer)];
        throw Error(ErrorKind::mismatch,
                    "an encoded message of " + std::to_string(incoming.arrived) + " bytes from rank " +
                        std::to_string(peer) + " is cut short",
                    {peer});
      }
      at += kLength;
    }
    stage.arrived[p - round.first_received_piece] = {incoming.data + at, nbytes};
    at += padded(nbytes);
  }
}

}  // namespace ringcomm
