// Connects the transports of threads: an inbox for each rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/threads.hpp"

namespace ringcomm {
namespace threads {

// State of a rendezvous. A message is `offered` first. The receiver changes this to `copying`, then
// to `copied`; the sender, to `withdrawn`. The first change from `offered` decides.
enum class Handover : int { offered, copying, copied, withdrawn };

struct Message {
  // Cancels the message. On return no thread reads the sender's buffer.
  void withdraw() {
    Handover expected = Handover::offered;
    if (handover.compare_exchange_strong(expected, Handover::withdrawn, std::memory_order_acq_rel)) return;
    while (handover.load(std::memory_order_acquire) == Handover::copying) std::this_thread::yield();
  }

  int source = 0, tag = 0;
  std::size_t nbytes = 0;
  const void* data = nullptr;  // the sender's buffer, or the bytes of `eager`
  std::unique_ptr<std::byte[]> eager;
  std::atomic<Handover> handover{Handover::offered};
};

struct Inbox {
  std::mutex mutex;
  std::vector<std::shared_ptr<Message>> messages;
  std::atomic<std::uint64_t> arrived{0};    // messages ever put here; shows without the lock that there are new ones
  std::atomic<std::uint64_t> completed{0};  // rendezvous sends of this rank that a receiver has copied
};

}  // namespace threads

class ThreadsHub {
 public:
  explicit ThreadsHub(int size) : inboxes_(static_cast<std::size_t>(size)), killed_(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(inboxes_.size()); }
  threads::Inbox& inbox(int rank) { return inboxes_[static_cast<std::size_t>(rank)]; }

  void kill(int rank) {
    killed_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
    kills_.fetch_add(1, std::memory_order_release);
  }
  bool killed(int rank) const { return killed_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire); }
  int kills() const { return kills_.load(std::memory_order_acquire); }
  int first_killed() const {
    for (int rank = 0; rank < size(); ++rank) {
      if (killed(rank)) return rank;
    }
    return kAnyPeer;
  }

 private:
  std::vector<threads::Inbox> inboxes_;
  std::vector<std::atomic<bool>> killed_;
  std::atomic<int> kills_{0};
};

}  // namespace ringcomm
