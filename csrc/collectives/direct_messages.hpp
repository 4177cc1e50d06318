// Sends memory directly from rank to rank. This code does not read the data, so it may be in device
// memory if the transport accepts that. Routes for GPU arrays use it.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/context.hpp"

namespace ringcomm {

class DirectMessages {
 public:
  explicit DirectMessages(CallContext& context, std::size_t longest = kLongestMessage)
      : context_(context), longest_(std::min(longest, kLongestMessage)) {}
  ~DirectMessages() { abandon(); }
  DirectMessages(const DirectMessages&) = delete;
  DirectMessages& operator=(const DirectMessages&) = delete;

  // Begins an exchange. All ranks begin the same exchanges in the same order. Each counts as a call
  // in Departures, so that no rank waits for an exchange that a leaving rank has not begun.
  void begin();
  // Takes group ranks. Empty messages are neither sent nor received.
  void send(int rank, const void* data, std::size_t nbytes);
  void receive(int rank, void* data, std::size_t nbytes);
  Progress advance();       // done: all messages are sent and received
  bool abandon() noexcept;  // true if an operation was in flight: sent memory may still be read

 private:
  struct Flight {  // a chunk of a message in flight
    Ticket ticket;
    std::size_t nbytes;
  };
  template <class Post>
  void post(std::size_t nbytes, Post post);
  bool over(const Flight& flight) const;

  CallContext& context_;
  const std::size_t longest_;
  int tag_ = 0;
  std::vector<Flight> flights_;
};

}  // namespace ringcomm
