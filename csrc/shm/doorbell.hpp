// Where a rank sleeps until some rank of its host has a message for it.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/futex.hpp"

namespace ringcomm {

// One cache line, of every arena. A sender writes what it has elsewhere (seq_cst) and then looks here; a sleeper counts
// itself in before it looks there a last time. All of it is in one total order, so no wake-up is lost.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings{0};  // the futex
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> state{0};   // 0 here, 1 left by close() or exit, 2 failed
  std::atomic<std::uint64_t> outbox{0};  // offset of the owner's table of rings to its host's ranks; 0: none yet

  void wake() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    rings.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(rings);
  }
  // `quiet`: nothing has come so far.
  template <class Quiet>
  void sleep(std::int64_t longest_ns, Quiet&& quiet) {
    const std::uint32_t seen = rings.load(std::memory_order_seq_cst);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    if (quiet()) futex_wait(rings, seen, longest_ns);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
};

class Node;
Doorbell& doorbell_of(Node& node, int rank);  // a rank of the node
void mark_failed(Node& node, int rank);       // of a rank that is a thread, for which no process ends

}  // namespace ringcomm
