// Messages between ranks that share a host's memory.
//
// A message begins with a cell, which contains the data if it is small. Data of up to kLongestEager
// bytes follows the cell immediately, in parts, so that the receiver copies one part while the
// sender writes the next. Longer data stays with the sender: the cell only announces it. Once a
// receive matches the message, the data is moved by the first of these routes that is possible:
//   sender's array in its arena:         receiver copies from it, and reports that (taken)
//   receiver's array in its arena:       receiver sends its offset (grant), sender copies (placed)
//   sender's memory readable:            receiver reads it, and reports that (taken)
//   otherwise, or if measured faster:    sender writes data in parts, both copy at the same time
// A receiver that copied from the sender's array checks afterwards that the sender had not
// withdrawn the message meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "p2p/matcher.hpp"
#include "p2p/pair_ring.hpp"
#include "shm/doorbell.hpp"
#include "shm/node.hpp"
#include "shm/path_tuner.hpp"
#include "shm/peer_memory.hpp"

namespace ringcomm {

class HostRoute final : public MessageRoute {
 public:
  // `ranks[i]`: the communicator's rank of the node's rank i.
  HostRoute(std::shared_ptr<Node> node, const std::vector<int>& ranks, bool reads_peers, bool attended,
            Account& account, Matcher& matcher);

  void send(Request& send) override;
  bool advance() override;
  void matched(const std::shared_ptr<Incoming>& message) override;
  bool withdraw(Request& request) override;
  void replace(Request& request, Request& successor) override;
  void forget(int peer, const Error& why) override;

  bool quiet() const;  // no peer has written anything that advance() would find
  Doorbell& doorbell() { return doorbell_of(*node_, node_->rank()); }
  bool busy() const;    // has work, or waits for room in a ring, which no doorbell signals
  bool moving() const;  // busy(), or data is arriving

  static constexpr std::size_t kLongestEager = 16 << 10;
  static constexpr std::size_t kSlice = 8 << 20;  // bytes copied between two polls for other messages

 private:
  using Message = std::shared_ptr<Incoming>;
  struct Lender {  // sent with an announcement
    MemoryCard card;
    std::uint64_t address;
    bool attended;  // the sender writes requested data soon, even while its caller does other work
  };
  struct Control {
    CellKind kind;
    std::uint64_t id, where;
  };
  struct Link {
    int local = 0, rank = 0;
    RingWriter out;
    RingReader in;
    std::uint64_t sent = 0;           // messages; source of their ids
    std::deque<Request*> queue;       // sends that have not begun, or have unwritten data
    std::vector<Request*> announced;  // wait for an answer
    std::vector<Request*> streams;    // granted: written in parts
    std::vector<Request*> places;     // granted: copied to the receiver's address
    std::vector<Message> coming;      // messages that the sender has begun, or that were granted to it
    std::vector<Message> pulls;       // messages that this rank copies from the sender's array
    MemoryCard card;                  // memory of that rank, once it has announced a message
    std::optional<bool> readable;     // true if its memory can be read; empty until tested
    // Chooses by message length, if the sender's memory is readable: this rank reads the data, or
    // the sender writes it. Writing needs both ranks to be active.
    PathTuner streaming{1.25F};
    std::deque<Control> controls;  // waiting for room in the ring
    std::optional<Error> error;
    bool busy() const {
      return !queue.empty() || !streams.empty() || !places.empty() || !pulls.empty() || !controls.empty();
    }
  };

  Link& link_of(int rank) { return links_[static_cast<std::size_t>(local_[static_cast<std::size_t>(rank)])]; }
  void make_ring(Link& link);  // creates the ring to that rank; throws Error(invalid)
  std::uint64_t ring_from(int local) const;
  void find_ring(Link& link);  // maps the ring from that rank, if it exists
  void publish(Link& link);
  void send_control(Link& link, const Control& control);

  // ---- sending
  bool write(Link& link, Request& send);        // true: the send can be removed from the queue
  bool write_parts(Link& link, Request& send);  // true: all parts are written
  bool place(Link& link, Request& send);        // copies a slice; true: all is copied
  bool give(Link& link);                        // advances all sends of this link; true if anything moved

  // ---- receiving
  bool read(Link& link);
  void handle(Link& link, const Cell& cell);
  void handle_message(Link& link, const Cell& cell);
  void handle_answer(Link& link, const Cell& cell);
  void handle_rest(Link& link, const Cell& cell);
  void deliver(Incoming& message, const void* data, std::size_t nbytes);
  void read_location(Link& link, const Cell& cell, Incoming& message);
  bool readable(Link& link);
  static void finish(Link& link, Incoming& message);
  void grant(Link& link, const Message& message, std::uint64_t where);
  bool pull(Link& link, const Message& message);  // copies a slice; true: the message can be removed from pulls
  void withdrawn(Link& link, std::uint64_t id);
  static void end_withdrawn(Link& link, std::uint64_t id);

  const std::shared_ptr<Node> node_;
  Matcher& matcher_;
  const bool attended_;
  const PeerMemory memory_;
  std::vector<int> local_;                       // ranks of the node, by the communicator's rank
  std::vector<Link> links_;                      // by the node's rank
  std::atomic<std::uint64_t>* rings_ = nullptr;  // offsets, by the node's rank, in this rank's arena
};

}  // namespace ringcomm
