// Messages between ranks that share a host's memory.
//
// Small ones lie in the cell that announces them; up to kLongestEager they are written behind it at once, in pieces, so
// that the receiver copies one while the sender writes the next. Longer ones are announced. Once a receive wants one:
//   the sender's array lies in its arena:         the receiver copies straight out of it, and says so (taken)
//   else, the receiver's array in its own:        it says where (grant), the sender copies straight there (placed)
//   else, the sender's memory may be read:        the receiver does, and says so (taken)
//   else, or where that has been much faster:     the sender writes it piece by piece, both copy at the same time
// Whoever copies out of another's array looks afterwards whether the other has not given it up meanwhile.
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

class HostPath final : public MessagePath {
 public:
  // `ranks[i]` is the communicator's rank of the node's rank i.
  HostPath(std::shared_ptr<Node> node, const std::vector<int>& ranks, bool reads_peers, bool attended, Account& account,
           Matcher& matcher);

  void send(Request& send) override;
  bool advance() override;
  void matched(const std::shared_ptr<Incoming>& message) override;
  bool withdraw(Request& request) override;
  void replace(Request& request, Request& successor) override;
  void forget(int peer, const Error& why) override;

  bool quiet() const;  // nothing has come that advance() would find
  Doorbell& doorbell() { return doorbell_of(*node_, node_->rank()); }
  bool busy() const;    // it has something to do, or to say when there is room: no doorbell tells when
  bool moving() const;  // or data is coming

  static constexpr std::size_t kLongestEager = 16 << 10;
  static constexpr std::size_t kSlice = 8 << 20;  // bytes copied between two looks at what else there is

 private:
  using Message = std::shared_ptr<Incoming>;
  struct Lender {  // with an announcement
    MemoryCard card;
    std::uint64_t address;
    bool attended;  // data that it is asked for goes out soon, whatever its caller does
  };
  struct Control {
    CellKind kind;
    std::uint64_t id, where;
  };
  struct Link {
    int local = 0, rank = 0;
    RingWriter out;
    RingReader in;
    std::uint64_t sent = 0;           // messages: their ids
    std::deque<Request*> queue;       // sends that have not begun, or whose data is not all out
    std::vector<Request*> announced;  // they wait for an answer
    std::vector<Request*> streams;    // granted: written as parts
    std::vector<Request*> places;     // granted: copied to where the receiver wants it
    std::vector<Message> coming;      // begun by the sender, or granted to it
    std::vector<Message> pulls;       // this rank copies out of the sender's array
    MemoryCard card;                  // of that rank, once it has announced something
    std::optional<bool> readable;     // whether its memory can be read, once that has been tried
    // Of what could be read, by its length: read, or written by the sender; for which both have to be there.
    PathTuner streaming{1.25F};
    std::deque<Control> controls;  // for which there was no room
    std::optional<Error> gone;
    bool busy() const {
      return !queue.empty() || !streams.empty() || !places.empty() || !pulls.empty() || !controls.empty();
    }
  };

  Link& link_of(int rank) { return links_[static_cast<std::size_t>(local_[static_cast<std::size_t>(rank)])]; }
  void make_ring(Link& link);  // to that rank; throws Error(invalid)
  std::uint64_t ring_from(int local) const;
  void find_ring(Link& link);  // from that rank, if it has made one
  void publish(Link& link);
  void say(Link& link, const Control& control);

  // ---- sending
  bool write(Link& link, Request& send);        // true: nothing of it remains in the queue
  bool write_parts(Link& link, Request& send);  // true: all of it
  bool place(Link& link, Request& send);        // a slice; true: all of it
  bool give(Link& link);                        // whatever this rank has for that one; true if anything moved

  // ---- receiving
  bool read(Link& link);
  void handle(Link& link, const Cell& cell);
  void handle_message(Link& link, const Cell& cell);
  void handle_answer(Link& link, const Cell& cell);
  void handle_rest(Link& link, const Cell& cell);
  void deliver(Incoming& message, const void* data, std::size_t nbytes);
  void learn_where(Link& link, const Cell& cell, Incoming& message);
  bool readable(Link& link);
  static void finish(Link& link, Incoming& message);
  void grant(Link& link, const Message& message, std::uint64_t where);
  bool pull(Link& link, const Message& message);  // a slice; true: it need not be pulled any more
  void withdrawn(Link& link, std::uint64_t id);
  static void end_withdrawn(Link& link, std::uint64_t id);

  const std::shared_ptr<Node> node_;
  Matcher& matcher_;
  const bool attended_;
  const PeerMemory memory_;
  std::vector<int> local_;                       // by the communicator's rank
  std::vector<Link> links_;                      // by the node's
  std::atomic<std::uint64_t>* rings_ = nullptr;  // offsets, by the node's rank, in this rank's arena
};

}  // namespace ringcomm
