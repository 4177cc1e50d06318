// Messages over a transport, to ranks with which this rank shares no memory.
//
// Every message begins with a letter. All letters use one tag, so they arrive in the order sent,
// whatever the messages' tags. Up to kLongestEager, the letter contains the data. Longer data
// follows immediately in separate transport messages, on a tag computed from the letter's id. Its
// receives are posted when a receive matches, directly into the receive's array. Until then the
// transport keeps the data: MPI sends long messages only when they are received. To receive
// one, MPI first requests it, in a message that queues behind all earlier traffic in that
// direction. So data is sent in pieces, few at a time. On slow links these are so short that MPI
// sends them without a request.
//
// This data cannot be withdrawn from MPI. A rank that withdraws a send announces it in a letter
// (withdrawn). It keeps the memory until the receiver has received and dropped all of it.
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

class NetworkPath final : public MessagePath {
 public:
  // Its tags are those from `first_tag` on. It is the only user of these tags and of the transport.
  // `piece`: bytes of a long message that are sent as one; equal on all ranks.
  NetworkPath(std::shared_ptr<Transport> transport, int first_tag, std::size_t piece, Account& account,
              Matcher& matcher);
  ~NetworkPath() override;

  void send(Request& send) override;
  bool advance() override;  // throws Error(transport | peer_lost): then the path is unusable
  void matched(const std::shared_ptr<Incoming>& message) override;
  bool withdraw(Request& request) override;
  void replace(Request& request, Request& successor) override;
  void forget(int peer, const Error& why) override;

  bool moving() const { return mail_.moving() || !sending_.empty() || !taking_.empty(); }
  // ranks that have sent a goodbye since the last call
  std::vector<int> departed() { return std::exchange(departed_, {}); }

  // ---- the end
  const std::vector<std::uint64_t>& sent() const { return sent_; }  // letters so far, by rank
  // Returns whether that many letters have arrived from each rank and all data has moved. After the
  // letters, messages without a receive are received and dropped, so that their senders can finish.
  // Call it again, after advance(), until it returns true.
  bool drained(const std::vector<std::uint64_t>& sent_here);
  void say_goodbye(const std::vector<int>& peers);
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
  struct Taking {
    Message message;
    Pieces pieces;
    std::vector<std::byte> waste;  // buffer for pieces of a dropped message
  };

  int data_tag(std::uint64_t id) const;
  template <class Post>
  bool advance(Pieces& pieces, std::size_t most, Post&& post);  // true: some have moved
  bool advance(Sending& sending);
  void write(int peer, const Header& header, const void* data, std::size_t nbytes);
  bool advance(Taking& taking);
  bool end(Taking& taking);  // true: all of it had arrived
  bool read();               // reads letters; true: there were some
  void handle(const Letter& letter);
  void withdrawn(int peer, std::uint64_t id);
  void give_up(std::vector<Ticket>& tickets);

  std::shared_ptr<Transport> transport_;  // null after close()
  const int first_tag_;
  const std::size_t piece_;
  Mail mail_;
  Matcher& matcher_;
  std::vector<std::uint64_t> sent_, heard_;  // letters per rank, sent and received
  std::list<Sending> sending_;
  std::list<Taking> taking_;
  std::vector<int> departed_;
};

}  // namespace ringcomm
