// Messages between ranks beside the collectives. A service takes what any rank sends it, of any length, at any time,
// and answers when it likes: what point-to-point messages, a parameter server or gossip are made of.
//
// It lives on the engine's worker. While nothing else moves the worker looks at it once a millisecond; at once after
// Engine::wake().
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

struct Letter {
  int peer = kAnyPeer;
  std::vector<std::byte> bytes;
};

// A service's messages: those of one tag. The worker's; nothing in it waits.
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

// All of it is called by the worker.
class Service {
 public:
  virtual ~Service() = default;
  virtual bool turn(Mail& mail) = 0;  // true if anything moved. Throws Error, which is fatal to the engine
  virtual void left(int rank, const Error& why) = 0;  // that rank has left: it answers nothing more
  virtual void end(const Error& why) = 0;             // this rank has, or a rank died: no more turns come
};

}  // namespace ringcomm
