// Connects the routes, on which messages arrive, with receives. Defines MessageRoute, the interface
// of all routes, and Incoming, a message that is being received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "p2p/matching.hpp"
#include "p2p/request.hpp"

namespace ringcomm {

class MessageRoute;

// A message that has begun to arrive, until a receive has all of its data.
struct Incoming {
  // `receive`, `refused`: results of Matcher::match(). `waits`: the message is announced.
  Incoming(MessageRoute& p, const Envelope& e, std::uint64_t number, Request* receive, bool refused, bool waits = false)
      : route(p), envelope(e), id(number), into(receive), dropped(refused), announced(waits) {
    if (!into && !dropped && !announced) kept = std::make_unique_for_overwrite<std::byte[]>(envelope.nbytes);
  }
  MessageRoute& route;
  const Envelope envelope;
  const std::uint64_t id;
  Request* into;                      // the receive that matched it; null: none yet
  bool dropped;                       // its data is not needed: it did not fit, or its receive was withdrawn
  std::unique_ptr<std::byte[]> kept;  // data that arrived before a receive matched
  std::uint64_t arrived = 0;
  bool announced;           // its data stays with the sender until a receive matches
  std::uint64_t where = 0;  // address of that data, in this rank's address space if `mapped`, otherwise in the sender's
  bool mapped = false;
  bool attended = false;          // the sender can write the data immediately
  bool placing = false;           // the sender writes into the receive's memory
  std::int64_t requested_ns = 0;  // when this rank chose how the data moves; 0: there was no choice
  bool streamed = false;          // the choice: the sender sends the data as parts; false: this rank reads it
  std::optional<Error> lost;      // its sender left, failed or died before all data arrived

  bool whole() const { return arrived == envelope.nbytes; }
  std::byte* next() { return (into ? static_cast<std::byte*>(into->data) : kept.get()) + arrived; }
  void deliver(const void* data, std::size_t nbytes);  // copies the next bytes to their address
  void finish();  // call it when all data has arrived; finishes the receive, if any
  void fail(const Error& why);
};

// A route of messages: between ranks of a host, between hosts, or from this rank to itself.
class MessageRoute {
 public:
  MessageRoute(Account& account, std::string_view route)
      : sends(account.entry("send", route)), receives(account.entry("recv", route)) {}
  virtual ~MessageRoute() = default;
  virtual void send(Request& send) = 0;  // begins a send; sends to the same rank keep their order
  virtual bool advance() = 0;            // true if anything moved
  // Moves the remaining data of a kept message, which now has a receive or is dropped.
  virtual void matched(const std::shared_ptr<Incoming>& message) = 0;
  // Withdraws a request in progress. Returns false if its memory is in use, or its peer is not
  // informed yet. The caller then replaces the request by a successor, which continues it.
  virtual bool withdraw(Request& request) = 0;
  virtual void replace(Request& request, Request& successor) = 0;
  virtual void forget(int peer, const Error& why) = 0;  // a rank left, failed or died: fails all its messages

  // Entries that count this route's sends and receives.
  const std::shared_ptr<Entry> sends, receives;
  void count_send(Request& send) const {
    sends->calls += 1;
    send.entry = sends.get();
  }
  void count_receive(Request& receive) const {  // call it when a message has matched
    receives->calls += 1;
    receive.entry = receives.get();
  }
};

class Matcher {
 public:
  explicit Matcher(int rank) : rank_(rank) {}
  // Returns the receive for a message. If the message does not fit, fails the receive, returns null
  // and sets `refused`. If null without `refused`, no receive matches yet: call keep().
  Request* match(const Envelope& envelope, bool& refused);
  void keep(std::shared_ptr<Incoming> message);
  // Begins a receive.
  void receive(Request& receive);
  bool cancel(Request& receive) { return matching_.cancel(&receive); }
  const Envelope* probe(int source, int tag) { return matching_.probe(source, tag); }
  Matching<Request*, std::shared_ptr<Incoming>>& matching() { return matching_; }

 private:
  bool check_room(Request& receive, const Envelope& envelope) const;  // true: it fits; otherwise fails the receive
  const int rank_;
  Matching<Request*, std::shared_ptr<Incoming>> matching_;
};

}  // namespace ringcomm
