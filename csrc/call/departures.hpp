// Who makes no more calls says so, and how many it has made, so that nobody waits for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/transport.hpp"

namespace ringcomm {

class Departures {
 public:
  // `tag`: of goodbyes; -1: somebody else listens (the engine). The others outlive it.
  Departures(Transport& transport, std::span<const int> peers, int me, int tag);
  ~Departures();
  Departures(const Departures&) = delete;
  Departures& operator=(const Departures&) = delete;

  void begin_call() { ++calls_; }
  void check();  // throws Error(left) if the current call needs somebody who has left
  void say_goodbye() noexcept;

 private:
  struct Goodbye {
    std::int64_t rank = -1;
    std::uint64_t calls = 0;  // that the leaver has made
  };
  void listen();  // posts the receive for one

  Transport& transport_;
  const std::span<const int> peers_;
  const int me_, tag_;
  std::uint64_t calls_ = 0;
  Goodbye incoming_, outgoing_;
  std::vector<Goodbye> departed_;
  Ticket listening_ = kNoTicket;
};

}  // namespace ringcomm
