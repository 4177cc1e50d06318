// Implements NetworkRoute: headers, pieces of long messages, withdrawal and closing.
#include "p2p/network_route.hpp"

#include <algorithm>
#include <cstring>

#include "transport/counted.hpp"

namespace ringcomm {
namespace {

constexpr int kMessagesPerRead = 64;                        // header messages read in one call
constexpr std::size_t kSends = 16, kReceives = 2 * kSends;  // pieces of a message in flight

}  // namespace

NetworkRoute::NetworkRoute(std::shared_ptr<Transport> transport, int first_tag, std::size_t piece, Account& account,
                           Matcher& matcher)
    : MessageRoute(account, "network"),
      transport_(std::make_shared<CountedTransport>(std::move(transport), sends->sent, receives->received)),
      first_tag_(first_tag), piece_(piece), mail_(*transport_, first_tag), matcher_(matcher),
      sent_(static_cast<std::size_t>(transport_->size())), received_(sent_) {}

NetworkRoute::~NetworkRoute() { close(); }

void NetworkRoute::close() {
  if (!transport_) return;
  for (Receiving& receiving : receiving_) give_up(receiving.pieces.tickets);
  for (Sending& sending : sending_) give_up(sending.pieces.tickets);
  receiving_.clear();
  sending_.clear();
  mail_.close();
  transport_.reset();
}

// Returns the tag of a message's data. Two messages of one sender in flight have different tags, as
// long as there are fewer messages than tags.
int NetworkRoute::data_tag(std::uint64_t id) const {
  const auto tags = static_cast<std::uint64_t>(transport_->tag_limit() - first_tag_ - 1);
  return first_tag_ + 1 + static_cast<int>(id % tags);
}

void NetworkRoute::give_up(std::vector<Ticket>& tickets) {
  for (const Ticket ticket : tickets) transport_->cancel(ticket);
  tickets.clear();
}

template <class Post>
bool NetworkRoute::advance(Pieces& pieces, std::size_t most, Post&& post) {
  bool moved = std::erase_if(pieces.tickets, [&](Ticket ticket) { return transport_->done(ticket); }) > 0;
  for (; pieces.tickets.size() < most && pieces.posted < pieces.nbytes; moved = true) {
    const std::uint64_t nbytes = std::min<std::uint64_t>(piece_, pieces.nbytes - pieces.posted);
    pieces.tickets.push_back(post(pieces.posted, nbytes));
    pieces.posted += nbytes;
  }
  return moved;
}

bool NetworkRoute::advance(Sending& sending) {
  const Request& send = *sending.send;
  return advance(sending.pieces, kSends, [&](std::uint64_t begin, std::uint64_t nbytes) {
    return transport_->send(send.peer, data_tag(send.id), static_cast<const std::byte*>(send.data) + begin, nbytes);
  });
}

void NetworkRoute::write(int peer, const Header& header, const void* data, std::size_t nbytes) {
  std::vector<std::byte> bytes(sizeof header + nbytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (nbytes > 0) std::memcpy(bytes.data() + sizeof header, data, nbytes);
  mail_.send(peer, std::move(bytes));
}

void NetworkRoute::send(Request& send) {
  const std::uint64_t id = send.id = sent_[static_cast<std::size_t>(send.peer)]++;
  if (send.nbytes <= kLongestEager) {
    write(send.peer, {Kind::whole, send.tag, send.nbytes, id}, send.data, send.nbytes);
    return send.finish();
  }
  write(send.peer, {Kind::announce, send.tag, send.nbytes, id}, nullptr, 0);
  advance(sending_.emplace_back(Sending{&send, {send.nbytes, 0, {}}}));
}

bool NetworkRoute::read() {
  for (int read = 0; read < kMessagesPerRead; ++read) {
    const auto received = mail_.receive();
    if (!received) return read > 0;
    handle(*received);
  }
  return true;
}

bool NetworkRoute::advance() {
  if (!transport_) return false;
  transport_->poll();
  bool moved = read();
  mail_.advance();
  for (Sending& sending : sending_) moved |= advance(sending);
  std::erase_if(sending_, [](Sending& sending) {
    if (!sending.pieces.moved()) return false;
    sending.send->finish();
    return true;
  });
  bool here = false;
  for (Receiving& receiving : receiving_) {
    moved |= advance(receiving);
    here |= receiving.pieces.moved();
  }
  if (!here) return moved;
  read();  // a withdrawal is sent before the last piece, so it is read before the receive ends
  std::erase_if(receiving_, [this](Receiving& receiving) { return end(receiving); });
  return true;
}

void NetworkRoute::handle(const MailMessage& received) {
  Header header;
  if (received.bytes.size() < sizeof header) throw Error(ErrorKind::internal, "a message has no header");
  std::memcpy(&header, received.bytes.data(), sizeof header);
  const int peer = received.peer;
  if (header.kind == Kind::goodbye) return departed_.push_back(peer);
  ++received_[static_cast<std::size_t>(peer)];
  if (header.kind == Kind::withdrawn) return withdrawn(peer, header.id);
  const Envelope envelope{peer, header.tag, header.nbytes};
  bool refused = false;
  Request* const receive = matcher_.match(envelope, refused);
  const bool announced = header.kind == Kind::announce;
  const auto message = std::make_shared<Incoming>(*this, envelope, header.id, receive, refused, announced);
  if (!announced) {
    message->deliver(received.bytes.data() + sizeof header, header.nbytes);
    message->finish();
  }
  if (!receive && !refused) return matcher_.keep(message);
  matched(message);
}

// Fails a withdrawn message. A receive that matched it ends only when MPI no longer writes to the
// receive's memory.
void NetworkRoute::withdrawn(int peer, std::uint64_t id) {
  const auto given_up = [&](const Message& message) {
    return &message->route == this && message->envelope.source == peer && message->id == id;
  };
  for (Receiving& receiving : receiving_) {
    if (given_up(receiving.message)) receiving.message->lost = given_up_error(receiving.message->envelope);
  }
  const auto unwanted =
      matcher_.matching().drop([&](const Message& message) { return message->announced && given_up(message); });
  if (!unwanted) return;
  (*unwanted)->dropped = true;
  matched(*unwanted);
}

void NetworkRoute::matched(const Message& message) {
  if (!message->announced) return;
  message->announced = false;
  Receiving& receiving = receiving_.emplace_back(Receiving{message, {message->envelope.nbytes, 0, {}}, {}});
  if (message->dropped) receiving.waste.resize(std::min<std::uint64_t>(message->envelope.nbytes, piece_));
  advance(receiving);
}

bool NetworkRoute::advance(Receiving& receiving) {
  const Incoming& message = *receiving.message;
  const bool dropped = !receiving.waste.empty();
  return advance(receiving.pieces, dropped ? 1 : kReceives, [&](std::uint64_t begin, std::uint64_t nbytes) {
    auto* const data = dropped ? receiving.waste.data() : static_cast<std::byte*>(message.into->data) + begin;
    return transport_->receive(message.envelope.source, data_tag(message.id), data, nbytes);
  });
}

bool NetworkRoute::end(Receiving& receiving) {
  if (!receiving.pieces.moved()) return false;
  Incoming& message = *receiving.message;
  message.arrived = message.envelope.nbytes;
  if (message.lost)
    message.fail(Error(*message.lost));
  else
    message.finish();
  return true;
}

// Returns false if MPI reads or writes the request's memory, which cannot be stopped.
bool NetworkRoute::withdraw(Request& request) {
  const auto sends = [&](const Sending& sending) { return sending.send == &request; };
  if (std::any_of(sending_.begin(), sending_.end(), sends)) {
    write(request.peer, {Kind::withdrawn, request.tag, request.nbytes, request.id}, nullptr, 0);
    ++sent_[static_cast<std::size_t>(request.peer)];
    return false;
  }
  const auto receives = [&](const Receiving& receiving) { return receiving.message->into == &request; };
  return std::none_of(receiving_.begin(), receiving_.end(), receives);
}

void NetworkRoute::replace(Request& request, Request& successor) {
  for (Sending& sending : sending_) {
    if (sending.send == &request) sending.send = &successor;
  }
  for (Receiving& receiving : receiving_) {
    if (receiving.message->into == &request) receiving.message->into = &successor;
  }
}

void NetworkRoute::forget(int peer, const Error& why) {
  if (!transport_) return;
  mail_.forget(peer);
  std::erase_if(sending_, [&](Sending& sending) {
    if (sending.send->peer != peer) return false;
    give_up(sending.pieces.tickets);
    sending.send->lent = true;
    sending.send->fail(why);
    return true;
  });
  std::erase_if(receiving_, [&](Receiving& receiving) {
    if (receiving.message->envelope.source != peer) return false;
    give_up(receiving.pieces.tickets);
    if (receiving.message->into) receiving.message->into->lent = true;
    receiving.message->fail(why);
    return true;
  });
}

bool NetworkRoute::drained(const std::vector<std::uint64_t>& sent_here) {
  if (received_ != sent_here) return false;
  for (const auto& unexpected : matcher_.matching().unexpected()) {
    if (&unexpected.message->route != this || !unexpected.message->announced) continue;
    unexpected.message->dropped = true;
    matched(unexpected.message);
  }
  return !moving();
}

void NetworkRoute::send_goodbyes(const std::vector<int>& peers) {
  for (const int peer : peers) write(peer, {Kind::goodbye, 0, 0, 0}, nullptr, 0);
}

}  // namespace ringcomm
