// Control messages between ranks: records in, records out. Used by the worker alone.
//
// Everything for one peer since the last flush() is one stream of bytes, cut into messages of at most 64 KB; the first
// byte of each says whether more follows. One receive from anybody is posted; it stays posted, for cancelling it could
// lose what is just arriving.
#pragma once

#include <deque>
#include <functional>
#include <unordered_map>

#include "engine/records.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

class Control {
 public:
  static constexpr std::size_t kCapacity = 64 << 10;  // bytes of the longest message

  explicit Control(Transport& transport) : transport_(transport) {}
  ~Control() { close(); }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  void send(int peer, const Record& record) { encode(record, outbox_[peer]); }
  void send(int peer, const Bytes& encoded);  // a record for many, encoded once
  // To every other rank but these. Who cannot be reached needs no word any more.
  void send_to_all(const Record& record, std::span<const int> except) noexcept;
  void flush();  // what was sent goes out now
  // Takes what has arrived; true if there was something. Posts the receive if need be.
  bool receive(const std::function<void(int peer, Record record)>& handle);
  bool sending();         // is anything still on its way out?
  void close() noexcept;  // forgets everything; nothing is received any more

 private:
  struct Outgoing {
    Ticket ticket;
    Bytes bytes;
  };

  Transport& transport_;
  std::unordered_map<int, Bytes> outbox_;
  std::deque<Outgoing> outgoing_;
  std::unordered_map<int, Bytes> partial_;  // by sender: messages of which more follows
  Bytes incoming_;
  Ticket listening_ = kNoTicket;
  bool closed_ = false;
};

}  // namespace ringcomm
