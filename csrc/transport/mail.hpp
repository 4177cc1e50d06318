// Messages of one tag of a transport, of any length, to and from any rank, at any time.
//
// They are received by matched probes and never by a posted receive from any rank: MPICH 5.0 on UCX loses such receives
// between hosts (docs/troubleshooting.md), and one receive posted for each rank would cost memory and polling.
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
  // The next message that is complete, of any rank; those of one rank in the order in which they were sent. Polls the
  // transport only while messages of this mail are moving.
  std::optional<Letter> receive();
  void advance();                                   // frees what has been sent. Throws Error for a failed send
  bool sending() const { return !going_.empty(); }  // as of the last advance()
  bool moving() const { return sending() || !coming_.empty(); }  // sending, or receiving
  void forget(int peer);                                         // cancels all that is being sent to `peer`
  void close() noexcept;

 private:
  struct Moving {
    Ticket ticket;
    Letter letter;
    bool arrived = false;
  };
  void collect();                // starts to receive each message that a probe finds
  std::optional<Letter> take();  // the first message that is complete

  Transport& transport_;
  const int tag_;
  std::deque<Moving> coming_;  // in the order sent
  std::list<Moving> going_;
  std::vector<Letter> kept_;  // of sends that were given up, which MPI may still read
  bool closed_ = false;
};

}  // namespace ringcomm
