// Ranks that make no more calls. A rank that leaves sends a goodbye with the number of calls that it has made, so that
// no peer waits for it; the death of a rank on this host is seen by its process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shm/peer_monitor.hpp"
#include "transport/mail.hpp"

namespace ringcomm {

class Departures {
 public:
  // `tag`: of goodbyes; -1: none are exchanged (the engine has its own). The other arguments outlive this object.
  Departures(Transport& transport, std::span<const int> peers, int me, int tag);
  Departures(const Departures&) = delete;
  Departures& operator=(const Departures&) = delete;

  // Of this host's other ranks, by process number. Who cannot be watched is noticed by MPI or the launcher, if at all.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
    monitor_.watch(std::move(processes), std::move(rank_of));
  }
  void begin_call() { ++calls_; }
  // Throws Error(left | peer_lost) if the current call needs a rank that has left, or died. Cheap enough for every poll
  // in vain: it looks for goodbyes and deaths only now and then.
  void check();
  void check_goodbyes();                        // looks for goodbyes now; throws Error(left)
  void say_goodbye(bool within_call) noexcept;  // within_call: the current call counts as not made

 private:
  struct Goodbye {
    std::int64_t rank = -1;
    std::uint64_t calls = 0;  // that the leaver has made
  };
  void look_for_deaths();

  Transport& transport_;
  const std::span<const int> peers_;
  const int me_;
  std::uint64_t calls_ = 0;
  std::optional<Mail> mail_;  // of goodbyes
  std::vector<Goodbye> departed_;
  PeerMonitor monitor_;
  Every probe_{100'000};  // for goodbyes: a probe takes as long as a small message's other costs
};

}  // namespace ringcomm
