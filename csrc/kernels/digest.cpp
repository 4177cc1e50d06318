// Implements the digest in four independent lanes.
#include "kernels/digest.hpp"

#include <cstring>

namespace ringcomm::kernels {

namespace {

// Four lanes of 16 bytes. They are independent, so a multiplication can begin in each cycle.
constexpr std::size_t kLanes = 4, kWords = 2 * kLanes, kBlock = kWords * sizeof(std::uint64_t);
constexpr std::uint64_t kKeys[kLanes] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3,
                                         0x589965cc75374cc3};

// Combines both halves of the product with xor, so that every bit depends on all bits of both
// factors. This function and the keys are from wyhash, by Wang Yi (public domain).
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline void add_block(std::uint64_t* lanes, const std::byte* block) {
  std::uint64_t words[kWords];
  std::memcpy(words, block, kBlock);
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = mixed(words[2 * i] ^ kKeys[i], words[2 * i + 1] ^ lanes[i]);
}

}  // namespace

std::uint64_t digest(const void* data, std::size_t nbytes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  std::uint64_t lanes[kLanes] = {kKeys[1], kKeys[2], kKeys[3], kKeys[0]};
  std::size_t left = nbytes;
  for (; left >= kBlock; left -= kBlock, bytes += kBlock) add_block(lanes, bytes);
  if (left > 0) {
    std::byte last[kBlock]{};
    std::memcpy(last, bytes, left);
    add_block(lanes, last);
  }
  std::uint64_t result = nbytes;
  for (std::size_t i = 0; i < kLanes; ++i) result = mixed(result ^ kKeys[i], lanes[i] ^ kKeys[3 - i]);
  return mixed(result ^ kKeys[0], kKeys[1]);
}

}  // namespace ringcomm::kernels
