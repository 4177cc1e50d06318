// What comes in, by whichever path, meets what is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "p2p/matching.hpp"
#include "p2p/request.hpp"

namespace ringcomm {

class MessagePath;

// A message that has begun to come, until a receive has all of it.
struct Incoming {
  // As Matcher::match has it.
  Incoming(MessagePath& p, const Envelope& e, std::uint64_t number, Request* receive, bool refused, bool waits = false)
      : path(p), envelope(e), id(number), into(receive), dropped(refused), announced(waits) {
    if (!into && !dropped && !announced) kept = std::make_unique_for_overwrite<std::byte[]>(envelope.nbytes);
  }
  MessagePath& path;
  const Envelope envelope;
  const std::uint64_t id;
  Request* into;                      // the receive that has it
  bool dropped;                       // nobody wants it: it was cut off, or its receive has been given up
  std::unique_ptr<std::byte[]> kept;  // what came before there was a receive
  std::uint64_t arrived = 0;
  bool announced;           // its data waits with the sender until a receive wants it
  std::uint64_t where = 0;  // there, in this rank's address space if it is `mapped`, or else in the sender's
  bool mapped = false;
  bool attended = false;      // the sender would send it at once
  bool placing = false;       // the sender writes into the receive's memory
  std::int64_t asked_ns = 0;  // when its data was asked for, if there were two ways to get it;
  bool streamed = false;      // and which one was taken
  std::optional<Error> lost;  // its sender has gone, with part of it

  bool whole() const { return arrived == envelope.nbytes; }
  std::byte* next() { return (into ? static_cast<std::byte*>(into->data) : kept.get()) + arrived; }
  void deliver(const void* data, std::size_t nbytes);  // the next bytes, where they belong
  void finish();                                       // the receive, if there is one: it has all
  void fail(const Error& why);
};

// Between two places: a host's ranks, ranks of other hosts, this rank and itself.
class MessagePath {
 public:
  MessagePath(Account& account, std::string_view way)
      : sends(account.entry("send", way)), receives(account.entry("recv", way)) {}
  virtual ~MessagePath() = default;
  virtual void send(Request& send) = 0;  // begins; those to one rank in this order
  virtual bool advance() = 0;            // true if anything moved
  // A message that had been kept has a receive now (or is dropped): whatever remains to come goes there.
  virtual void matched(const std::shared_ptr<Incoming>& message) = 0;
  // The caller gives up a request that is under way. False: its memory is in use, or its peer has not been told yet;
  // so it goes on as another one.
  virtual bool withdraw(Request& request) = 0;
  virtual void replace(Request& request, Request& successor) = 0;
  virtual void forget(int peer, const Error& why) = 0;  // a rank that has left or died: fails what involves it

  // With what becomes of these requests.
  const std::shared_ptr<Entry> sends, receives;
  void count_send(Request& send) const {
    sends->calls += 1;
    send.entry = sends.get();
  }
  void count_receive(Request& receive) const {  // it has its message
    receives->calls += 1;
    receive.entry = receives.get();
  }
};

class Matcher {
 public:
  explicit Matcher(int rank) : rank_(rank) {}
  // The receive for a message; it is checked that it fits (else null, and *refused). Null: keep() it.
  Request* match(const Envelope& envelope, bool& refused);
  void keep(std::shared_ptr<Incoming> message);
  // A receive begins.
  void receive(Request& receive);
  bool cancel(Request& receive) { return matching_.cancel(&receive); }
  const Envelope* probe(int source, int tag) { return matching_.probe(source, tag); }
  Matching<Request*, std::shared_ptr<Incoming>>& matching() { return matching_; }

 private:
  bool check_room(Request& receive, const Envelope& envelope) const;  // true: it fits; else the receive has failed
  const int rank_;
  Matching<Request*, std::shared_ptr<Incoming>> matching_;
};

}  // namespace ringcomm
