// Detects ranks that make no more calls. A rank that leaves sends a goodbye message with the number
// of calls that it has made, so that no peer waits for it. Dead ranks of this host are detected by
// watching their processes.
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
  // `tag`: of goodbye messages; -1: the engine handles them. Other arguments outlive this object.
  Departures(Transport& transport, std::span<const int> peers, int me, int tag);
  Departures(const Departures&) = delete;
  Departures& operator=(const Departures&) = delete;

  // Watches the processes of this host's other ranks, by process id. Only MPI or the launcher can
  // notice the death of ranks on other hosts.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
    monitor_.watch(std::move(processes), std::move(rank_of));
  }
  void begin_call() { ++calls_; }
  // Throws Error(left | peer_lost) if the current call needs a rank that has left or died. Cheap
  // enough for every unsuccessful poll: it checks only at intervals.
  void check();
  void check_goodbyes();                         // checks now; throws Error(left)
  void send_goodbye(bool within_call) noexcept;  // within_call: the current call does not count as made

 private:
  struct Goodbye {
    std::int64_t rank = -1;
    std::uint64_t calls = 0;  // made by the leaving rank
  };
  void look_for_deaths();

  Transport& transport_;
  const std::span<const int> peers_;
  const int me_;
  std::uint64_t calls_ = 0;
  std::optional<Mail> mail_;  // for goodbye messages
  std::vector<Goodbye> departed_;
  PeerMonitor monitor_;
  Every probe_{100'000};  // ns between probes for goodbyes; a probe takes as long as the rest of a small message
};

}  // namespace ringcomm
