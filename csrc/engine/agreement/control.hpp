// Sends and receives control messages between ranks, as records. Only the worker uses it.
//
// All records for one peer since the last flush() are one message. Messages are received by matched
// probes: no receive is posted ahead, so an idle rank costs nothing and there is nothing to cancel
// at the end.
#pragma once

#include <functional>
#include <unordered_map>

#include "engine/agreement/records.hpp"
#include "engine/tags.hpp"
#include "transport/mail.hpp"

namespace ringcomm {

class Control {
 public:
  explicit Control(Transport& transport) : mail_(transport, TagMap::kControl) {}
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  void send(int peer, const Record& record) { encode(record, outbox_[peer]); }
  void send(int peer, const Bytes& encoded);  // a record for many peers, encoded once
  // Sends to every rank but this one and those of `except`. Skips ranks that cannot be reached.
  void send_to_all(const Record& record, std::span<const int> except) noexcept;
  void flush();  // posts the collected records
  // Passes each record that has arrived to `handle`; true if there was one.
  bool receive(const std::function<void(int peer, Record record)>& handle);
  bool sending();                           // true while a message is being sent
  void close() noexcept { mail_.close(); }  // cancels all messages; sends and receives no more

 private:
  Mail mail_;
  std::unordered_map<int, Bytes> outbox_;
};

}  // namespace ringcomm
