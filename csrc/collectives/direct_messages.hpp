// Pieces of memory that go straight from rank to rank. Nothing here looks at what is in them: they may be a device's,
// where the transport takes that.
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

  // All ranks begin the same exchanges, in one order. For who leaves each is a call: nobody waits for one that another
  // has not begun.
  void begin();
  // Ranks are the group's. What is empty is neither sent nor waited for.
  void send(int rank, const void* data, std::size_t nbytes);
  void receive(int rank, void* data, std::size_t nbytes);
  Progress advance();       // done: all has been sent, and has come
  bool abandon() noexcept;  // true if anything was under way: what was being sent may still be read

 private:
  struct Flight {  // a chunk of a piece
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
