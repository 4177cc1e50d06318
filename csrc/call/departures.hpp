// Who makes no more calls says so, and how many it has made, so that nobody waits for it; who dies on this host is
// noticed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "node/death_watch.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

class Departures {
 public:
  // `tag`: of goodbyes; -1: somebody else listens (the engine). The others outlive it.
  Departures(Transport& transport, std::span<const int> peers, int me, int tag);
  ~Departures();
  Departures(const Departures&) = delete;
  Departures& operator=(const Departures&) = delete;

  // Of this host's other ranks, by process number. Who cannot be watched is noticed by MPI or the launcher, if at all.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
    deaths_.start(std::move(processes), std::move(rank_of));
  }
  void begin_call() { ++calls_; }
  void check();           // throws Error(left | peer_lost) if the current call needs somebody who has left, or died
  void check_goodbyes();  // the first half: throws Error(left)
  void say_goodbye(bool within_call) noexcept;  // within_call: the last call counts as not made

 private:
  struct Goodbye {
    std::int64_t rank = -1;
    std::uint64_t calls = 0;  // that the leaver has made
  };
  void listen();  // posts the receive for one
  void look_for_deaths();

  Transport& transport_;
  const std::span<const int> peers_;
  const int me_, tag_;
  std::uint64_t calls_ = 0;
  Goodbye incoming_, outgoing_;
  std::vector<Goodbye> departed_;
  Ticket listening_ = kNoTicket;
  DeathWatch deaths_;
  std::int64_t looked_ns_ = 0;
};

}  // namespace ringcomm
