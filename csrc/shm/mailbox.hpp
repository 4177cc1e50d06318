// Defines the mailbox, through which a rank publishes its calls to the ranks of its host.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/descriptor.hpp"

namespace ringcomm {

inline constexpr int kSlots = 64;  // ordered streams (channels) that one arena serves
// Mailboxes per rank. The sub-channels of the channel in `slot` use mailbox `slot + kSlots`.
inline constexpr int kMailboxes = 2 * kSlots;
inline constexpr std::uint64_t kPrivate = ~std::uint64_t{0};  // "offset" of memory outside the arena

// Bytes of inline data in a mailbox: 4 KB, and the counts that precede them.
inline constexpr std::size_t kPayload = 4608;

// Bytes of the longest short payload. Its lines are prefetched for the writer when its call begins,
// and for the readers when ranks have arrived. Lines of longer payloads are prefetched for the
// writer when the call before ends; for the readers, the processor does it.
inline constexpr std::size_t kPrefetched = 256, kPayloadAlign = 64;

// Published by a rank that arrives at a call. If all digests are equal, peers do not read the
// descriptors.
struct CallHeader {
  struct Offsets {                     // in the owner's arena
    std::uint64_t array = kPrivate;    // the call's array
    std::uint64_t staging = kPrivate;  // the slot's staging memory
  };
  std::uint64_t digest = 0;  // hash of the descriptor (digest_of)
  union {
    Offsets offsets = {};
    std::byte data[sizeof(Offsets)];  // the data of a small call, which needs no offsets
  };
};
inline constexpr std::size_t kHeaderData = sizeof(CallHeader::data);

// The data that a rank publishes on its host in one slot. The epoch counts this rank's arrivals; it
// is also the futex on which peers sleep. The epoch and the call headers share one cache line, so a
// peer reads both with one miss. Headers, descriptors and payloads exist twice, for even and odd
// calls, because a rank may be one call ahead of a peer, but not more.
struct alignas(64) Mailbox {
  std::atomic<std::uint32_t> epoch{0};
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> state{0};    // 0 active, 1 left by close() or exit, 2 failed, 3 left within a call
  std::atomic<std::uint32_t> left_at{0};  // in state 3: the epoch before that call
  CallHeader header[2];
  alignas(64) Descriptor descriptor[2];  // peers read it only if digests differ
  alignas(kPayloadAlign) std::byte payload[2][kPayload];
  std::uint64_t staging = kPrivate;  // Offsets::staging, which the owner keeps for its next call
  // Offset, in the owner's arena, of the memory through which a leader and the ranks of its host
  // exchange data (message_check.cpp). Set once; only for hosts with a leader.
  std::uint64_t leader_scratch = kPrivate;
};
static_assert(offsetof(Mailbox, header) + sizeof(Mailbox::header) <= 64);

}  // namespace ringcomm
