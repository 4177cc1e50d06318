// Moves bytes between ranks, for schedules, negotiation and messages. One thread at a time uses a
// transport; no function blocks.
//
// A message from any rank is received by a matched probe, never by a posted receive. MPICH 5.0 on
// UCX loses posted receives from any rank between hosts (docs/troubleshooting.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringcomm {

using Ticket = std::int32_t;  // identifies a message in flight
inline constexpr Ticket kNoTicket = -1;
inline constexpr int kAnyPeer = -1;

struct Arrival {
  int peer = kAnyPeer;
  std::size_t nbytes = 0;
  bool received = false;  // true for a receive, false for a send
};

// A message that a probe has found and removed from the queue, to be received once.
struct Found {
  Arrival arrival;
  std::uint64_t message = 0;  // the transport's identifier for the message
};

struct MessageCounts {
  std::vector<std::uint64_t> sent, received;  // by rank
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int tag_limit() const = 0;  // tags are 0 .. tag_limit-1

  // Messages of one (sender, tag) are matched in posting order. nbytes <= kLongestMessage. The
  // caller owns the buffers, which must live until done() or cancel(). A receive may be longer than
  // its message.
  virtual Ticket send(int peer, int tag, const void* data, std::size_t nbytes) = 0;
  virtual Ticket receive(int peer, int tag, void* data, std::size_t nbytes) = 0;

  // Finds the first message with this tag, from `peer` or kAnyPeer, for which no receive is posted.
  // Reports its sender and length, and reserves it for receive(found, ...), which must follow.
  // Returns false if there is none. Throws as done() does.
  virtual bool probe(int peer, int tag, Found& found) = 0;
  virtual Ticket receive(const Found& found, void* data) = 0;  // receives the complete message

  virtual bool poll() = 0;                       // makes progress; true if an operation completed
  virtual bool yields() const { return false; }  // true if an idle poll() yields the core
  // Returns true once the message is complete, which ends its ticket. Throws Error(transport |
  // peer_lost) for a failed message.
  virtual bool done(Ticket ticket, Arrival* arrival = nullptr) = 0;
  // Cancels an unwanted receive, or any operation after an error. Ignores tickets of no message.
  virtual void cancel(Ticket ticket) noexcept = 0;
  virtual std::size_t in_flight() const = 0;
  // Returns true if the library reports that buffers of messages may be in GPU memory.
  virtual bool takes_device_memory() const { return false; }

  // Returns the messages sent to each rank, and received from each, since the transport was
  // created. When all ranks have stopped, the difference is the number of messages to receive
  // before the communicator may be freed.
  virtual MessageCounts counts() const = 0;
};

inline constexpr std::size_t kLongestMessage = std::size_t{1} << 30;

}  // namespace ringcomm
