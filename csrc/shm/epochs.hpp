// Arrivals of a host's ranks, which are all that they wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/prefetch.hpp"
#include "shm/node.hpp"
#include "shm/path_tuner.hpp"
#include "shm/peer_memory.hpp"

namespace ringcomm {

// An ordered stream of arrivals in one slot. publish() then reached(): a barrier in two halves, neither of which waits.
class Epochs {
 public:
  Epochs(Node& node, int slot);
  // A new call soon: what it writes first is fetched, which takes as long as all that comes before it.
  void expect() {
    prefetch_to_write(&mine());
    prefetch_to_write(mine().payload[(calls_ + 1) % 2]);
  }
  // A new call: until the next one, its opening, descriptor and payload are those of this parity in every mailbox.
  std::size_t open_call() {
    opened_at_ = epoch_;
    return ++calls_ % 2;
  }
  std::size_t parity() const { return calls_ % 2; }
  std::uint32_t publish();  // this rank arrives: release store, wakes sleepers only if there are any
  // has everybody? acquire. Throws Error(left | peer_lost) if a lagging rank is gone, or one has left within the call
  bool reached(std::uint32_t epoch);
  void sleep(std::uint32_t epoch, std::int64_t longest_ns);  // raw shared futex on a lagging rank's epoch
  void look_for_failures() const;  // throws Error(peer_lost) for ranks that have said so, whoever waits for whom
  void leave_within_call();        // from now on peers that have entered this rank's last call, or later ones, throw
  void wake();                     // after a change of this rank's mailbox.state: whoever sleeps on us looks again
  std::vector<int> behind();       // ranks that have not arrived as often as this one
  Node& node() { return node_; }
  int slot() const { return slot_; }
  Mailbox& mailbox(int rank) { return node_.mailbox(rank, slot_); }
  Mailbox& mine() { return mailbox(node_.rank()); }

  const PeerMemory memory;          // this process's, for the host's ranks to read
  std::optional<bool> reads_peers;  // whether this rank can read theirs, once that is known
  bool all_read = false;            // whether all ranks have said that they can
  PathTuner reading;                // of data that is moved: through staging memory, or read where it lies
  std::uint64_t staged = 0;         // segments that have gone through staging memory so far, equal on all ranks
  std::uint64_t copied = 0;         // bytes of what the host's ranks share, read or written; taken by who books calls

 private:
  bool lags(int rank, std::uint32_t epoch);
  bool left_within(int rank, std::uint32_t epoch);  // a call that has arrived at `epoch`
  void look_for_loss(std::uint32_t epoch);
  [[noreturn]] void report_left(std::uint32_t epoch);

  Node& node_;
  int slot_;
  std::uint32_t epoch_ = 0, opened_at_ = 0;  // now; before the last call
  std::uint64_t calls_ = 0;
  int behind_ = 0;              // the rank last seen lagging: looked at first
  std::uint32_t awaited_ = 0;   // the epoch that was last waited for,
  std::int64_t looked_ns_ = 0;  // and when its laggards' processes were last looked at
};

}  // namespace ringcomm
