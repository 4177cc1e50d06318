// Implements NetworkPath: letters, pieces of long messages, withdrawal and closing.
#include "p2p/network_path.hpp"

#include <algorithm>
#include <cstring>

#include "transport/counted.hpp"

namespace ringcomm {
namespace {

constexpr int kLetters = 64;                                // read in one call
constexpr std::size_t kSends = 16, kReceives = 2 * kSends;  // pieces of a message in flight

}  // namespace

NetworkPath::NetworkPath(std::shared_ptr<Transport> transport, int first_tag, std::size_t piece, Account& account,
                         Matcher& matcher)
    : MessagePath(account, "network"),
      transport_(std::make_shared<CountedTransport>(std::move(transport), sends->sent, receives->received)),
      first_tag_(first_tag), piece_(piece), mail_(*transport_, first_tag), matcher_(matcher),
      sent_(static_cast<std::size_t>(transport_->size())), heard_(sent_) {}

NetworkPath::~NetworkPath() { close(); }

void NetworkPath::close() {
  if (!transport_) return;
  for (Taking& one : taking_) give_up(one.pieces.tickets);
  for (Sending& one : sending_) give_up(one.pieces.tickets);
  taking_.clear();
  sending_.clear();
  mail_.close();
  transport_.reset();
}

// Returns the tag of a message's data. Two messages of one sender in flight have different tags, as
// long as there are fewer messages than tags.
int NetworkPath::data_tag(std::uint64_t id) const {
  const auto tags = static_cast<std::uint64_t>(transport_->tag_limit() - first_tag_ - 1);
  return first_tag_ + 1 + static_cast<int>(id % tags);
}

void NetworkPath::give_up(std::vector<Ticket>& tickets) {
  for (const Ticket ticket : tickets) transport_->cancel(ticket);
  tickets.clear();
}

template <class Post>
bool NetworkPath::advance(Pieces& pieces, std::size_t most, Post&& post) {
  bool moved = std::erase_if(pieces.tickets, [&](Ticket ticket) { return transport_->done(ticket); }) > 0;
  for (; pieces.tickets.size() < most && pieces.posted < pieces.nbytes; moved = true) {
    const std::uint64_t nbytes = std::min<std::uint64_t>(piece_, pieces.nbytes - pieces.posted);
    pieces.tickets.push_back(post(pieces.posted, nbytes));
    pieces.posted += nbytes;
  }
  return moved;
}

bool NetworkPath::advance(Sending& sending) {
  const Request& send = *sending.send;
  return advance(sending.pieces, kSends, [&](std::uint64_t begin, std::uint64_t nbytes) {
    return transport_->send(send.peer, data_tag(send.id), static_cast<const std::byte*>(send.data) + begin, nbytes);
  });
}

void NetworkPath::write(int peer, const Header& header, const void* data, std::size_t nbytes) {
  std::vector<std::byte> bytes(sizeof header + nbytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (nbytes > 0) std::memcpy(bytes.data() + sizeof header, data, nbytes);
  mail_.send(peer, std::move(bytes));
}

void NetworkPath::send(Request& send) {
  const std::uint64_t id = send.id = sent_[static_cast<std::size_t>(send.peer)]++;
  if (send.nbytes <= kLongestEager) {
    write(send.peer, {Kind::whole, send.tag, send.nbytes, id}, send.data, send.nbytes);
    return send.finish();
  }
  write(send.peer, {Kind::announce, send.tag, send.nbytes, id}, nullptr, 0);
  advance(sending_.emplace_back(Sending{&send, {send.nbytes, 0, {}}}));
}

bool NetworkPath::read() {
  for (int read = 0; read < kLetters; ++read) {
    const auto letter = mail_.receive();
    if (!letter) return read > 0;
    handle(*letter);
  }
  return true;
}

bool NetworkPath::advance() {
  if (!transport_) return false;
  transport_->poll();
  bool moved = read();
  mail_.advance();
  for (Sending& one : sending_) moved |= advance(one);
  std::erase_if(sending_, [](Sending& one) {
    if (!one.pieces.moved()) return false;
    one.send->finish();
    return true;
  });
  bool here = false;
  for (Taking& one : taking_) {
    moved |= advance(one);
    here |= one.pieces.moved();
  }
  if (!here) return moved;
  read();  // a sender sends a withdrawal before the last piece
  std::erase_if(taking_, [this](Taking& one) { return end(one); });
  return true;
}

void NetworkPath::handle(const Letter& letter) {
  Header header;
  if (letter.bytes.size() < sizeof header) throw Error(ErrorKind::internal, "a message without a header");
  std::memcpy(&header, letter.bytes.data(), sizeof header);
  const int peer = letter.peer;
  if (header.kind == Kind::goodbye) return departed_.push_back(peer);
  ++heard_[static_cast<std::size_t>(peer)];
  if (header.kind == Kind::withdrawn) return withdrawn(peer, header.id);
  const Envelope envelope{peer, header.tag, header.nbytes};
  bool refused = false;
  Request* const receive = matcher_.match(envelope, refused);
  const bool announced = header.kind == Kind::announce;
  const auto message = std::make_shared<Incoming>(*this, envelope, header.id, receive, refused, announced);
  if (!announced) {
    message->deliver(letter.bytes.data() + sizeof header, header.nbytes);
    message->finish();
  }
  if (!receive && !refused) return matcher_.keep(message);
  matched(message);
}

// Fails a withdrawn message. A receive that matched it ends only when MPI no longer writes its
// memory.
void NetworkPath::withdrawn(int peer, std::uint64_t id) {
  const auto given_up = [&](const Message& message) {
    return &message->path == this && message->envelope.source == peer && message->id == id;
  };
  for (Taking& one : taking_) {
    if (given_up(one.message)) one.message->lost = given_up_error(one.message->envelope);
  }
  const auto unwanted =
      matcher_.matching().drop([&](const Message& message) { return message->announced && given_up(message); });
  if (!unwanted) return;
  (*unwanted)->dropped = true;
  matched(*unwanted);
}

void NetworkPath::matched(const Message& message) {
  if (!message->announced) return;
  message->announced = false;
  Taking& taking = taking_.emplace_back(Taking{message, {message->envelope.nbytes, 0, {}}, {}});
  if (message->dropped) taking.waste.resize(std::min<std::uint64_t>(message->envelope.nbytes, piece_));
  advance(taking);
}

bool NetworkPath::advance(Taking& taking) {
  const Incoming& message = *taking.message;
  const bool dropped = !taking.waste.empty();
  return advance(taking.pieces, dropped ? 1 : kReceives, [&](std::uint64_t begin, std::uint64_t nbytes) {
    auto* const data = dropped ? taking.waste.data() : static_cast<std::byte*>(message.into->data) + begin;
    return transport_->receive(message.envelope.source, data_tag(message.id), data, nbytes);
  });
}

bool NetworkPath::end(Taking& taking) {
  if (!taking.pieces.moved()) return false;
  Incoming& message = *taking.message;
  message.arrived = message.envelope.nbytes;
  if (message.lost)
    message.fail(Error(*message.lost));
  else
    message.finish();
  return true;
}

// Memory that MPI reads or writes cannot be withdrawn.
bool NetworkPath::withdraw(Request& request) {
  const auto sends = [&](const Sending& one) { return one.send == &request; };
  if (std::any_of(sending_.begin(), sending_.end(), sends)) {
    write(request.peer, {Kind::withdrawn, request.tag, request.nbytes, request.id}, nullptr, 0);
    ++sent_[static_cast<std::size_t>(request.peer)];
    return false;
  }
  const auto receives = [&](const Taking& one) { return one.message->into == &request; };
  return std::none_of(taking_.begin(), taking_.end(), receives);
}

void NetworkPath::replace(Request& request, Request& successor) {
  for (Sending& one : sending_) {
    if (one.send == &request) one.send = &successor;
  }
  for (Taking& one : taking_) {
    if (one.message->into == &request) one.message->into = &successor;
  }
}

void NetworkPath::forget(int peer, const Error& why) {
  if (!transport_) return;
  mail_.forget(peer);
  std::erase_if(sending_, [&](Sending& one) {
    if (one.send->peer != peer) return false;
    give_up(one.pieces.tickets);
    one.send->lent = true;
    one.send->fail(why);
    return true;
  });
  std::erase_if(taking_, [&](Taking& one) {
    if (one.message->envelope.source != peer) return false;
    give_up(one.pieces.tickets);
    if (one.message->into) one.message->into->lent = true;
    one.message->fail(why);
    return true;
  });
}

bool NetworkPath::drained(const std::vector<std::uint64_t>& sent_here) {
  if (heard_ != sent_here) return false;
  for (const auto& one : matcher_.matching().unexpected()) {
    if (&one.message->path != this || !one.message->announced) continue;
    one.message->dropped = true;
    matched(one.message);
  }
  return !moving();
}

void NetworkPath::say_goodbye(const std::vector<int>& peers) {
  for (const int peer : peers) write(peer, {Kind::goodbye, 0, 0, 0}, nullptr, 0);
}

}  // namespace ringcomm
