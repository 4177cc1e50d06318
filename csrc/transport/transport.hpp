// Moves bytes between ranks. Used by one thread at a time; no function of it blocks.
//
// A message from any rank is received by a matched probe, never by a posted receive: MPICH 5.0 on UCX loses posted
// receives from any rank between hosts (docs/troubleshooting.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringcomm {

using Ticket = std::int32_t;  // names a message under way
inline constexpr Ticket kNoTicket = -1;
inline constexpr int kAnyPeer = -1;

struct Arrival {
  int peer = kAnyPeer;
  std::size_t nbytes = 0;
  bool received = false;  // of a receive, not of a send
};

// A message that a probe has found and taken out of the others: for one receive.
struct Found {
  Arrival arrival;
  std::uint64_t message = 0;  // the transport's name for it
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

  // Messages of one (sender, tag) are matched in posting order. nbytes <= kLongestMessage. Buffers stay the caller's
  // and must live until done() or cancel(). A receive may be longer than its message.
  virtual Ticket send(int peer, int tag, const void* data, std::size_t nbytes) = 0;
  virtual Ticket receive(int peer, int tag, void* data, std::size_t nbytes) = 0;

  // The first message of this tag for which no receive has been posted, of a peer or of kAnyPeer: tells who sent it and
  // how long it is, and keeps it for receive(found, ...), which must follow. False if there is none. Throws as done().
  virtual bool probe(int peer, int tag, Found& found) = 0;
  virtual Ticket receive(const Found& found, void* data) = 0;  // all of it

  virtual bool poll() = 0;                       // makes progress; true if anything completed
  virtual bool yields() const { return false; }  // a poll() that finds nothing lets others have the core by itself
  // True once complete, and the ticket is then gone. Throws Error(transport | peer_lost) for a failed message.
  virtual bool done(Ticket ticket, Arrival* arrival = nullptr) = 0;
  // A receive that is no longer wanted, or anything after an error; kNoTicket, and what is gone, are nothing.
  virtual void cancel(Ticket ticket) noexcept = 0;
  virtual std::size_t in_flight() const = 0;
  virtual bool takes_device_memory() const { return false; }  // as it says itself: buffers of messages may be a GPU's

  // Messages sent to each rank, and received from each, since the transport was made. When all ranks have stopped, the
  // difference is what still has to be received before the communicator may be freed.
  virtual MessageCounts counts() const = 0;
};

inline constexpr std::size_t kLongestMessage = std::size_t{1} << 30;

}  // namespace ringcomm
