// Messages over a transport, to ranks with which this rank shares no memory.
//
// Every message begins with a header message. All header messages use one tag, so they arrive in
// the order sent, whatever the messages' tags. Up to kLongestEager bytes, the header message
// contains the data. Longer data follows in separate transport messages, on a tag computed from the
// header's id. When a receive matches, the transport receives this data directly into the receive's
// array. Until then the data stays with the sender: MPI sends long messages only when they are
// received. To receive one, MPI first requests it, in a message that queues behind all earlier
// traffic in that direction. To keep that queue short, data is sent in pieces, few at a time. On
// slow links the pieces are so short that MPI sends them without a request.
//
// Data that was passed to MPI cannot be withdrawn. A rank that withdraws a send sends a header
// (withdrawn), and keeps the memory until the receiver has received and dropped all of the data.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "p2p/matcher.hpp"
#include "transport/mail.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

class NetworkRoute final : public MessageRoute {
 public:
  // The route uses the tags from `first_tag` on, and no other user may use the transport.
  // `piece`: bytes of a long message that are sent as one; equal on all ranks.
  NetworkRoute(std::shared_ptr<Transport> transport, int first_tag, std::size_t piece, Account& account,
               Matcher& matcher);
  ~NetworkRoute() override;

  void send(Request& send) override;
  bool advance() override;  // throws Error(transport | peer_lost): then the route is unusable
  void matched(const std::shared_ptr<Incoming>& message) override;
  bool withdraw(Request& request) override;
  void replace(Request& request, Request& successor) override;
  void forget(int peer, const Error& why) override;

  bool moving() const { return mail_.moving() || !sending_.empty() || !receiving_.empty(); }
  // ranks that have sent a goodbye since the last call
  std::vector<int> departed() { return std::exchange(departed_, {}); }

  // ---- the end
  const std::vector<std::uint64_t>& sent() const { return sent_; }  // header messages so far, by rank
  // Returns whether all data has moved. `sent_here`: number of header messages that each rank has
  // sent to this rank. Once all of these have arrived, messages without a receive are received and
  // dropped, so that senders can finish. Call it again, after advance(), until it returns true.
  bool drained(const std::vector<std::uint64_t>& sent_here);
  void send_goodbyes(const std::vector<int>& peers);
  void close();  // releases the transport; no other function may be called after it

  static constexpr std::size_t kLongestEager = 16 << 10;

 private:
  enum class Kind : std::uint32_t { whole, announce, withdrawn, goodbye };
  struct Header {
    Kind kind = Kind::whole;
    std::int32_t tag = 0;
    std::uint64_t nbytes = 0, id = 0;
  };
  using Message = std::shared_ptr<Incoming>;
  struct Pieces {  // the data after an announcement
    std::uint64_t nbytes = 0, posted = 0;
    std::vector<Ticket> tickets;  // in flight
    bool moved() const { return posted == nbytes && tickets.empty(); }
  };
  struct Sending {
    Request* send;
    Pieces pieces;
  };
  struct Receiving {
    Message message;
    Pieces pieces;
    std::vector<std::byte> waste;  // buffer for pieces of a dropped message
  };

  int data_tag(std::uint64_t id) const;
  template <class Post>
  bool advance(Pieces& pieces, std::size_t most, Post&& post);  // true: some have moved
  bool advance(Sending& sending);
  void write(int peer, const Header& header, const void* data, std::size_t nbytes);
  bool advance(Receiving& receiving);
  bool end(Receiving& receiving);  // true: the message had arrived completely
  bool read();                     // reads header messages; true: there were some
  void handle(const MailMessage& received);
  void withdrawn(int peer, std::uint64_t id);
  void give_up(std::vector<Ticket>& tickets);

  std::shared_ptr<Transport> transport_;  // null after close()
  const int first_tag_;
  const std::size_t piece_;
  Mail mail_;
  Matcher& matcher_;
  std::vector<std::uint64_t> sent_, received_;  // header messages per rank, sent and received
  std::list<Sending> sending_;
  std::list<Receiving> receiving_;
  std::vector<int> departed_;
};

}  // namespace ringcomm
