// A doorbell is where a rank sleeps until a rank of its host has a message for it. Point-to-point
// messages and the worker use it.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/futex.hpp"

namespace ringcomm {

// A cache line in every arena. A sender first writes its message elsewhere (seq_cst), and then
// reads `sleepers`. A sleeper first increments `sleepers`, and then looks for messages a last time.
// All accesses are in one total order, so no wake-up is lost.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings{0};  // the futex
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> state{0};  // 0 active, 1 left by close() or exit, 2 failed
  // Offset of the owner's table of message rings to the ranks of its host; 0: none yet.
  std::atomic<std::uint64_t> outbox{0};

  void wake() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    rings.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(rings);
  }
  // Sleeps if `quiet()` returns true: no message has arrived yet.
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
void mark_failed(Node& node, int rank);       // for ranks that are threads: no process ends when they fail

}  // namespace ringcomm
