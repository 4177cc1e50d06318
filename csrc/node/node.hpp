// Memory that the ranks of a host share: every rank owns an arena, and maps everybody's.
//
// An arena is a memfd whose first pages hold this rank's mailboxes, one per slot; the rest is a heap that grows by
// fallocate, so that a refusal is an error and never SIGBUS. An address in it is (rank, offset), for ranks map it
// anywhere. The descriptors travel over Unix sockets in Python (ringcomm/bootstrap.py); here they are only mapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/types.hpp"
#include "node/descriptor.hpp"

namespace ringcomm {

inline constexpr int kSlots = 64;                             // ordered streams (channels) that one arena serves
inline constexpr std::uint64_t kPrivate = ~std::uint64_t{0};  // "offset" of memory outside the arena

inline constexpr std::size_t kPayload = 2048;  // bytes of data that a mailbox takes beside a call's descriptor

// What a rank says of a call when it arrives: as little as its peers must read if all is well.
struct Opening {
  std::uint64_t digest = 0;          // of what must agree (digest_of)
  std::uint64_t offset = kPrivate;   // of the call's array in the owner's arena
  std::uint64_t staging = kPrivate;  // of the slot's staging memory in the owner's arena
};

// What a rank shows its host in one slot. The epoch counts this rank's arrivals; it is also the futex on which peers
// sleep. One cache line brings a peer the epoch and the opening. Openings, descriptors and payloads have two places,
// which calls take in turns: a rank is never more than one call ahead of another.
struct alignas(64) Mailbox {
  std::atomic<std::uint32_t> epoch{0};
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> state{0};  // 0 here, 1 left by close() or exit, 2 failed
  Opening opening[2];
  alignas(64) Descriptor descriptor[2];  // read by peers only if digests differ
  alignas(64) std::byte payload[2][kPayload];
  std::uint64_t staging = kPrivate;  // the owner's note for its next call
  // where its ranks meet who speak with other hosts (call/comparison.cpp); never replaced
  std::uint64_t board = kPrivate;
};
static_assert(offsetof(Mailbox, opening) + sizeof(Mailbox::opening) <= 64);

class Node {
 public:
  // Makes this rank's arena: a memfd of `reserve` bytes of address space; returns the descriptor to give to peers.
  static int make_arena();
  // Maps every rank's arena; fds[i] is local rank i's (duplicates are taken; the caller keeps its own). Throws
  // Error(invalid).
  Node(int rank, const std::vector<int>& fds, std::size_t reserve = std::size_t{64} << 30);
  // Ranks as threads: nodes of one process over the same memory (so that a race detector sees one address per byte).
  static std::vector<std::shared_ptr<Node>> for_threads(int size);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(bases_.size()); }
  Mailbox& mailbox(int rank, int slot);
  std::byte* at(int rank, std::uint64_t offset) { return bases_[static_cast<std::size_t>(rank)] + offset; }

  // This rank's heap: 4096-byte aligned. Thread-safe, local. Throws Error(invalid) naming the bytes if memory is
  // refused.
  std::uint64_t allocate(std::size_t nbytes);
  void free(std::uint64_t offset);
  std::uint64_t offset_of(const void* data, std::size_t nbytes) const;  // kPrivate if not (wholly) in this rank's arena

  // Processes to watch: a pidfd per local rank (-1: none, or oneself). Throws Error(peer_lost) naming local ranks that
  // died.
  void watch(std::vector<int> pidfds);
  std::vector<int> dead() const;  // local ranks whose process has ended

 private:
  struct Heap;
  Node() = default;
  void take_arenas(int rank, const std::shared_ptr<class Mappings>& mappings, const std::vector<int>& fds);
  int rank_ = 0;
  std::vector<std::byte*> bases_;
  std::vector<int> pidfds_;
  std::shared_ptr<Heap> heap_;
  std::shared_ptr<void> mapping_;  // unmaps
};

// An ordered stream of arrivals in one slot. publish() then reached(): a barrier in two halves, neither of which waits.
class Epochs {
 public:
  Epochs(Node& node, int slot);
  // A new call: until the next one, `place` is where its opening, descriptor and payload stand in every mailbox.
  std::size_t open_call() { return ++calls_ % 2; }
  std::size_t place() const { return calls_ % 2; }
  std::uint32_t publish();  // this rank arrives: release store, wakes sleepers only if there are any
  // has everybody? acquire. Throws Error(left | peer_lost) if a lagging rank is gone
  bool reached(std::uint32_t epoch);
  void sleep(std::uint32_t epoch, std::int64_t longest_ns);  // raw shared futex on a lagging rank's epoch
  void wake();                // after a change of this rank's mailbox.state: whoever sleeps on us looks again
  std::vector<int> behind();  // ranks that have not arrived as often as this one
  Node& node() { return node_; }
  int slot() const { return slot_; }
  Mailbox& mailbox(int rank) { return node_.mailbox(rank, slot_); }
  Mailbox& mine() { return mailbox(node_.rank()); }

  std::uint64_t staged = 0;  // segments that have gone through staging memory so far, equal on all ranks

 private:
  bool lags(int rank, std::uint32_t epoch);
  void look_for_loss(std::uint32_t epoch);

  Node& node_;
  int slot_;
  std::uint32_t epoch_ = 0;
  std::uint64_t calls_ = 0;
  int behind_ = 0;              // the rank last seen lagging: looked at first
  std::uint32_t awaited_ = 0;   // the epoch that was last waited for,
  std::int64_t looked_ns_ = 0;  // and when its laggards' processes were last looked at
};

}  // namespace ringcomm
