// Sends and receives messages of any length, with one tag of a transport, to and from any rank, at
// any time. Departures, the engine and services use it.
//
// Messages are received by matched probes, never by a posted receive from any rank: MPICH 5.0 on
// UCX loses these receives between hosts (docs/troubleshooting.md). One posted receive per rank
// would cost memory and polling.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <optional>
#include <vector>

#include "transport/transport.hpp"

namespace ringcomm {

struct MailMessage {
  int peer = kAnyPeer;
  std::vector<std::byte> bytes;
};

// A message queue on a transport, for one thread at a time. No function blocks.
class Mail {
 public:
  Mail(Transport& transport, int tag) : transport_(transport), tag_(tag) {}
  ~Mail() { close(); }
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  void send(int peer, std::vector<std::byte> bytes);  // owns the bytes until they are sent
  // Returns the next complete message of any rank; messages of one rank arrive in the order sent.
  // Polls the transport only while messages of this Mail are in flight.
  std::optional<MailMessage> receive();
  void advance();                                     // frees sent messages; throws Error for a failed send
  bool sending() const { return !sending_.empty(); }  // as of the last advance()
  bool moving() const { return sending() || !receiving_.empty(); }  // sending, or receiving
  void forget(int peer);  // cancels all messages that are being sent to `peer`
  void close() noexcept;

 private:
  struct Transfer {
    Ticket ticket;
    MailMessage message;
    bool arrived = false;
  };
  void collect();                     // starts to receive each message that a probe finds
  std::optional<MailMessage> take();  // the first complete message

  Transport& transport_;
  const int tag_;
  std::deque<Transfer> receiving_;  // in the order sent
  std::list<Transfer> sending_;
  std::vector<MailMessage> kept_;  // messages of cancelled sends, which MPI may still read
  bool closed_ = false;
};

}  // namespace ringcomm
