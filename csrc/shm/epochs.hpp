// Counts the arrivals of a host's ranks at calls. All synchronisation within a host is built on it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/prefetch.hpp"
#include "shm/node.hpp"
#include "shm/path_tuner.hpp"
#include "shm/peer_memory.hpp"

namespace ringcomm {

// An ordered stream of arrivals in one slot. publish() and reached() are the two halves of a
// barrier; neither blocks.
class Epochs {
 public:
  Epochs(Node& node, int slot);
  // Sets the group rank of each local rank, for errors and behind(); by default they are equal.
  void set_group_ranks(std::vector<int> ranks) { group_ranks_ = std::move(ranks); }
  // Prefetches the cache lines that the next call writes first, while that call is prepared. The
  // lines of a short payload of `nbytes` are fetched too, here and when ranks have arrived.
  void expect(std::size_t nbytes) {
    prefetch_to_write(&mine());
    fetched_ = nbytes <= kPrefetched ? nbytes : 0;
    for_each_line(next_payload(), fetched_, prefetch_to_write);
  }
  // Prefetches the lines of the next call's payload, if it is long. Call it at the end of a call,
  // with the bytes of its payload: the next one is probably as long. Peers have read what is there,
  // because they have arrived at this call.
  void expect_again(std::size_t nbytes) {
    if (nbytes > kPrefetched) for_each_line(next_payload(), nbytes, prefetch_to_write);
  }
  // Begins a new call, and returns its parity: the index of the call's header, descriptor and
  // payload in every mailbox.
  std::size_t open_call() {
    opened_at_ = epoch_;
    header_ = {};
    header_stored_ = false;
    return ++calls_ % 2;
  }
  std::size_t parity() const { return calls_ % 2; }
  // This rank's header of the current call. The first publish() after open_call() stores it in the
  // mailbox.
  CallHeader& header() { return header_; }
  // The header of a rank that has arrived. For this rank it is header(): when a peer polls the
  // mailbox, some processors move the line to the peer's cache, so that reading it here is a miss.
  const CallHeader& header_of(int rank) { return rank == node_.rank() ? header_ : mailbox(rank).header[parity()]; }
  std::uint32_t publish();  // this rank arrives: a seq_cst store; wakes sleepers only if there are any
  // Returns whether all peers have arrived (acquire). Throws Error(left | peer_lost) if a lagging
  // rank left, failed or died, or a rank left within the call.
  bool reached(std::uint32_t epoch);
  void sleep(std::uint32_t epoch, std::int64_t longest_ns);  // futex wait on the epoch of a lagging rank
  void look_for_failures() const;  // throws Error(peer_lost) if any rank has published that it failed
  void leave_within_call();        // peers throw in this rank's last call and in later ones
  void wake();                     // call it after a change of this rank's Mailbox::state
  std::vector<int> behind();       // group ranks that have arrived less often than this one
  Node& node() { return node_; }
  int slot() const { return slot_; }
  Mailbox& mailbox(int rank) { return node_.mailbox(rank, slot_); }
  Mailbox& mine() { return mailbox(node_.rank()); }

  const PeerMemory memory;          // this process's memory, for the host's ranks to read
  std::optional<bool> reads_peers;  // this rank can read the memory of all its peers; empty until tested
  bool all_read = false;            // all ranks have published that they can read
  PathTuner reading;                // chooses between staging memory and reading peers' memory directly
  std::uint64_t staged = 0;         // segments passed through staging memory so far; equal on all ranks
  std::uint64_t copied = 0;         // bytes of the host's shared memory read or written; reset when calls are booked

 private:
  int group_rank(int rank) const { return group_ranks_.empty() ? rank : group_ranks_[static_cast<std::size_t>(rank)]; }
  const std::byte* next_payload() { return mine().payload[(calls_ + 1) % 2]; }
  template <class F>
  static void for_each_line(const std::byte* payload, std::size_t nbytes, F fetch) {
    for (std::size_t at = 0; at < nbytes; at += kPayloadAlign) fetch(payload + at);
  }
  bool lags(int rank, std::uint32_t epoch);
  bool left_within(int rank, std::uint32_t epoch);  // `epoch`: arrival at the call
  void look_for_loss(std::uint32_t epoch);
  [[noreturn]] void report_left(std::uint32_t epoch);

  Node& node_;
  int slot_;
  std::vector<int> group_ranks_;             // by local rank; empty: equal
  std::uint32_t epoch_ = 0, opened_at_ = 0;  // current epoch; epoch before the last call
  std::uint64_t calls_ = 0;
  CallHeader header_;
  bool header_stored_ = true;
  std::size_t fetched_ = 0;     // bytes of each payload of the current call that are prefetched
  int behind_ = 0;              // the peer last seen lagging, which is checked first
  std::uint32_t awaited_ = 0;   // the epoch last waited for
  std::int64_t looked_ns_ = 0;  // time of the last look at lagging ranks' processes
};

}  // namespace ringcomm
