// Messages of one tag of a transport, of any length, to and from any rank, at any time.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <optional>
#include <vector>

#include "transport/transport.hpp"

namespace ringcomm {

struct Letter {
  int peer = kAnyPeer;
  std::vector<std::byte> bytes;
};

// Used by one thread at a time, as the transport is; nothing in it waits.
class Mail {
 public:
  Mail(Transport& transport, int tag) : transport_(transport), tag_(tag) {}
  ~Mail() { close(); }
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  void send(int peer, std::vector<std::byte> bytes);  // kept until they are out
  // The next message that is here whole, of any rank. Those of one rank come in the order in which they were sent.
  std::optional<Letter> receive();
  void advance();                                                      // gives back what is out. Throws what is fatal
  bool moving() const { return !going_.empty() || !coming_.empty(); }  // are bytes on their way, in or out?
  void forget(int peer);                                               // it takes and sends nothing more
  void close() noexcept;

 private:
  struct Moving {
    Ticket ticket;
    Letter letter;
    bool arrived = false;
  };
  void collect();

  Transport& transport_;
  const int tag_;
  std::deque<Moving> coming_;  // in the order sent
  std::list<Moving> going_;
  std::vector<Letter> kept_;  // of sends that were given up, which MPI may still read
  bool closed_ = false;
};

}  // namespace ringcomm
