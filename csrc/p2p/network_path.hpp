// Messages over a transport, to ranks with which this one shares no memory.
//
// Every message begins with a letter, all letters on one tag: so they come in the order sent, whatever their own tags.
// Up to kLongestEager the data comes in it. Longer data follows at once as messages of its own, on a tag that the
// letter's number tells; its receives are posted when somebody wants it, straight into place. What waits meanwhile is
// the transport's business: MPI sends long messages only when they are received. To receive one it first asks for it,
// in a message that waits behind all that is on its way in that direction. So data goes in pieces, few at a time, which
// on slow links are so short that MPI sends them unasked.
//
// Nothing can take such data back: who gives up a send says so in a letter (withdrawn) and keeps the memory until the
// receiver has taken all of it, and dropped it.
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
  // Its tags are those from `first_tag` on; nobody else has them, and nobody else uses the transport.
  // `piece`: bytes of long messages that go at once, the same on all ranks.
  NetworkPath(std::shared_ptr<Transport> transport, int first_tag, std::size_t piece, Account& account,
              Matcher& matcher);
  ~NetworkPath() override;

  void send(Request& send) override;
  bool advance() override;  // throws Error(transport | peer_lost): nothing works after that
  void matched(const std::shared_ptr<Incoming>& message) override;
  bool withdraw(Request& request) override;
  void replace(Request& request, Request& successor) override;
  void forget(int peer, const Error& why) override;

  bool moving() const { return mail_.moving() || !sending_.empty() || !taking_.empty(); }
  std::vector<int> departed() { return std::exchange(departed_, {}); }  // said goodbye since last asked

  // ---- the end
  const std::vector<std::uint64_t>& sent() const { return sent_; }  // letters so far, by rank
  // Whether so many have come of each rank; what never had a receive is from then on received and dropped, so that its
  // sender is done with it. Ask again, after advance(), until all has moved.
  bool drained(const std::vector<std::uint64_t>& sent_here);
  void say_goodbye(const std::vector<int>& peers);
  void close();  // lets go of the transport; nothing else is called after it

  static constexpr std::size_t kLongestEager = 16 << 10;

 private:
  enum class Kind : std::uint32_t { whole, announce, withdrawn, goodbye };
  struct Header {
    Kind kind = Kind::whole;
    std::int32_t tag = 0;
    std::uint64_t nbytes = 0, id = 0;
  };
  using Message = std::shared_ptr<Incoming>;
  struct Pieces {  // of the data after an announcement
    std::uint64_t nbytes = 0, posted = 0;
    std::vector<Ticket> tickets;  // under way
    bool moved() const { return posted == nbytes && tickets.empty(); }
  };
  struct Sending {
    Request* send;
    Pieces pieces;
  };
  struct Taking {
    Message message;
    Pieces pieces;
    std::vector<std::byte> waste;  // where a message goes that nobody wants, piece by piece
  };

  int data_tag(std::uint64_t id) const;
  template <class Post>
  bool advance(Pieces& pieces, std::size_t most, Post&& post);  // true: some have moved
  bool advance(Sending& sending);
  void write(int peer, const Header& header, const void* data, std::size_t nbytes);
  bool advance(Taking& taking);
  bool end(Taking& taking);  // true: it was here
  bool read();               // letters; true: there were some
  void handle(const Letter& letter);
  void withdrawn(int peer, std::uint64_t id);
  void give_up(std::vector<Ticket>& tickets);

  std::shared_ptr<Transport> transport_;  // null after close()
  const int first_tag_;
  const std::size_t piece_;
  Mail mail_;
  Matcher& matcher_;
  std::vector<std::uint64_t> sent_, heard_;  // messages and what was said of them, by rank
  std::list<Sending> sending_;
  std::list<Taking> taking_;
  std::vector<int> departed_;
};

}  // namespace ringcomm
