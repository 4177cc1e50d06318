// What a rank publishes on its host, where every rank of the host reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/descriptor.hpp"

namespace ringcomm {

inline constexpr int kSlots = 64;                             // ordered streams (channels) that one arena serves
inline constexpr int kMailboxes = 2 * kSlots;                 // of a rank: slot + kSlots is a channel's SubChannels'
inline constexpr std::uint64_t kPrivate = ~std::uint64_t{0};  // "offset" of memory outside the arena

// Bytes of data that a mailbox takes beside a call's descriptor: 4 KB, and numbers that are exchanged before.
inline constexpr std::size_t kPayload = 4608;

// What a rank says of a call when it arrives: as little as its peers must read if all is well.
struct CallHeader {
  std::uint64_t digest = 0;          // of what must agree (digest_of)
  std::uint64_t offset = kPrivate;   // of the call's array in the owner's arena
  std::uint64_t staging = kPrivate;  // of the slot's staging memory in the owner's arena
};

// What a rank publishes on its host in one slot. The epoch counts this rank's arrivals; it is also the futex on which
// peers sleep. One cache line brings a peer the epoch and the opening. Of openings, descriptors and payloads there are
// two, for even and for odd calls: a rank is never more than one call ahead of another.
struct alignas(64) Mailbox {
  std::atomic<std::uint32_t> epoch{0};
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> state{0};    // 0 here, 1 left by close() or exit, 2 failed, 3 left within a call
  std::atomic<std::uint32_t> left_at{0};  // of state 3: the epoch before that call
  CallHeader header[2];
  alignas(64) Descriptor descriptor[2];  // read by peers only if digests differ
  alignas(64) std::byte payload[2][kPayload];
  std::uint64_t staging = kPrivate;  // the owner's note for its next call
  // of hosts that have a leader, in the owner's arena: where it and they publish (message_check.cpp); it stays
  std::uint64_t leader_scratch = kPrivate;
};
static_assert(offsetof(Mailbox, header) + sizeof(Mailbox::header) <= 64);

}  // namespace ringcomm
