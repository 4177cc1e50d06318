// Messages over a transport, to ranks with which this one shares no memory.
//
// Every message begins with a letter, all letters on one tag: so they come in the order sent, whatever their own tags.
// Up to kLongestEager the data comes in it. Longer data follows at once as messages of its own, on a tag that the
// letter's number tells; its receives are posted when somebody wants it, straight into place. What waits meanwhile is
// the transport's business: MPI sends long messages only when they are received.
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
  NetworkPath(std::shared_ptr<Transport> transport, int first_tag, Account& account, Matcher& matcher);
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
  struct Sending {  // the data after an announcement
    Request* send;
    std::vector<Ticket> tickets;
  };
  struct Taking {  // the data of an announced message
    Message message;
    std::vector<Ticket> tickets;
    std::vector<std::byte> waste;  // where a message goes that nobody wants, piece by piece
    std::uint64_t asked = 0;       // bytes for which receives have been posted
    bool here = false;             // all of it
  };

  int data_tag(std::uint64_t id) const;
  bool done(std::vector<Ticket>& tickets);
  void write(int peer, const Header& header, const void* data, std::size_t nbytes);
  void post(Taking& taking);
  bool take(Taking& taking);  // true: the last of it has come just now
  bool end(Taking& taking);   // true: it was here
  bool read();                // letters; true: there were some
  void handle(const Letter& letter);
  void withdrawn(int peer, std::uint64_t id);
  void give_up(std::vector<Ticket>& tickets);

  std::shared_ptr<Transport> transport_;  // null after close()
  const int first_tag_;
  Mail mail_;
  Matcher& matcher_;
  std::vector<std::uint64_t> sent_, heard_;  // messages and what was said of them, by rank
  std::list<Sending> sending_;
  std::list<Taking> taking_;
  std::vector<int> departed_;
};

}  // namespace ringcomm
