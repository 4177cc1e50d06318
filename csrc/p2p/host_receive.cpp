// Implements the receiving side of HostRoute: reads cells, matches messages, and fetches data.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/clock.hpp"
#include "kernels/kernels.hpp"
#include "p2p/host_route.hpp"

namespace ringcomm {
namespace {

// Removes the entry with this id from the list, and returns it; null: not found.
template <class List>
auto take(List& list, std::uint64_t id) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& message) { return message->id == id; });
  if (found == list.end()) return typename List::value_type{};
  auto message = std::move(*found);
  list.erase(found);
  return message;
}

std::size_t length(const Incoming& message) {
  return static_cast<std::size_t>(std::bit_width(message.envelope.nbytes));
}

}  // namespace

bool HostRoute::read(Link& link) {
  std::size_t cells = 0;
  for (const Cell* cell = link.in.next(); cell; cell = cells < PairRing::kCells ? link.in.next() : nullptr) {
    handle(link, *cell);
    link.in.pop(*cell);
    ++cells;
  }
  return cells > 0;
}

void HostRoute::handle(Link& link, const Cell& cell) {
  switch (cell.kind) {
    case CellKind::whole:
    case CellKind::begin:
    case CellKind::announce:
      return handle_message(link, cell);
    case CellKind::grant:
    case CellKind::taken:
      return handle_answer(link, cell);
    case CellKind::part:
    case CellKind::placed:
    case CellKind::withdrawn:
      return handle_rest(link, cell);
  }
}

void HostRoute::handle_message(Link& link, const Cell& cell) {
  const Envelope envelope{link.rank, cell.tag, cell.nbytes};
  bool refused = false;
  Request* const receive = matcher_.match(envelope, refused);
  if (cell.kind == CellKind::whole && (receive || refused)) {
    if (refused) return;
    if (cell.nbytes > 0) std::memcpy(receive->data, cell.data, cell.nbytes);
    receives->memory += cell.nbytes;
    receive->status = envelope;
    count_receive(*receive);
    return receive->finish();
  }
  const bool announced = cell.kind == CellKind::announce;
  const auto message = std::make_shared<Incoming>(*this, envelope, cell.id, receive, refused, announced);
  if (announced) read_location(link, cell, *message);
  if (cell.kind == CellKind::whole) deliver(*message, cell.data, cell.nbytes);
  if (cell.kind == CellKind::begin) link.coming.push_back(message);
  if (!receive && !refused) return matcher_.keep(message);
  if (announced) matched(message);
}

void HostRoute::deliver(Incoming& message, const void* data, std::size_t nbytes) {
  message.deliver(data, nbytes);
  if (!message.dropped) receives->memory += nbytes;
}

void HostRoute::read_location(Link& link, const Cell& cell, Incoming& message) {
  Lender lender;
  std::memcpy(&lender, cell.data, sizeof lender);
  link.card = lender.card;
  message.attended = lender.attended;
  message.mapped = cell.where != kPrivate;
  message.where = message.mapped ? reinterpret_cast<std::uint64_t>(node_->at(link.local, cell.where)) : lender.address;
}

// Continues an announced message, which now has a receive or is dropped.
void HostRoute::matched(const Message& message) {
  if (!message->announced) return;
  Link& link = link_of(message->envelope.source);
  message->announced = false;
  if (link.error) return message->fail(*link.error);  // the sender may have reused its array
  if (!link.out) make_ring(link);                     // needed for the answers
  if (message->dropped) return send_control(link, {CellKind::taken, message->id, 0});
  const std::uint64_t here = node_->offset_of(message->into->data, message->envelope.nbytes);
  const bool slow = kernels::slow_to_copy(message->into->data, reinterpret_cast<const void*>(message->where));
  if (message->mapped) return link.pulls.push_back(message);
  if (here != kPrivate || slow || !readable(link)) return grant(link, message, here);
  if (!message->attended) return link.pulls.push_back(message);
  message->requested_ns = now_ns();
  message->streamed = link.streaming.use_second(length(*message));
  message->streamed ? grant(link, message, kPrivate) : link.pulls.push_back(message);
}

void HostRoute::finish(Link& link, Incoming& message) {
  if (message.requested_ns != 0) {
    const double ns = static_cast<double>(now_ns() - message.requested_ns);
    const std::size_t kind = length(message);
    link.streaming.record(kind, message.streamed, ns / static_cast<double>(message.envelope.nbytes));
    link.streaming.merge(kind, link.streaming.report(kind));
  }
  message.finish();
}

bool HostRoute::readable(Link& link) {
  if (!link.readable) link.readable = PeerMemory::readable(link.card);
  return *link.readable;
}

void HostRoute::grant(Link& link, const Message& message, std::uint64_t where) {
  message->placing = where != kPrivate;
  link.coming.push_back(message);
  send_control(link, {CellKind::grant, message->id, where});
}

// Copies the next slice. A complete message is finished at the next poll: if no withdrawal was read
// by then, the sender's array was valid.
bool HostRoute::pull(Link& link, const Message& message) {
  if (message->whole()) {
    // the sender left or failed: forget() will end the message
    if (doorbell_of(*node_, link.local).state.load(std::memory_order_seq_cst) != 0) return false;
    send_control(link, {CellKind::taken, message->id, 0});
    finish(link, *message);
    return true;
  }
  const std::size_t left = message->envelope.nbytes - message->arrived, nbytes = std::min<std::size_t>(kSlice, left);
  const std::uint64_t from = message->where + message->arrived;
  if (message->dropped) {
    message->arrived += left;
  } else if (message->mapped) {
    deliver(*message, reinterpret_cast<const std::byte*>(from), nbytes);
  } else if (PeerMemory::read(link.card, from, message->next(), nbytes)) {
    message->arrived += nbytes;
    receives->memory += nbytes;
  } else {  // part of the memory is not readable, or the process has ended, which look() will detect
    message->arrived = 0;
    grant(link, message, kPrivate);
    return true;
  }
  return false;
}

void HostRoute::handle_answer(Link& link, const Cell& cell) {
  Request* const send = take(link.announced, cell.id);
  if (cell.kind == CellKind::taken) {
    if (send) send->finish();
    return;
  }
  if (!send) return;  // the send was withdrawn, and the receiver was informed
  send->target = cell.where;
  (cell.where == kPrivate ? link.streams : link.places).push_back(send);
}

void HostRoute::handle_rest(Link& link, const Cell& cell) {
  if (cell.kind == CellKind::part) {
    const auto found = std::find_if(link.coming.begin(), link.coming.end(),
                                    [&](const Message& message) { return message->id == cell.id; });
    if (found == link.coming.end()) return;  // the message has failed meanwhile
    Incoming& message = **found;
    deliver(message, link.in.bytes(cell), cell.nbytes);
    if (!message.whole()) return;
    finish(link, message);
    link.coming.erase(found);
    return;
  }
  if (cell.kind == CellKind::withdrawn) return withdrawn(link, cell.id);
  const Message message = take(link.coming, cell.id);
  if (!message) return;
  message->arrived = message->envelope.nbytes;
  message->finish();
}

void HostRoute::withdrawn(Link& link, std::uint64_t id) {
  for (std::vector<Message>* list : {&link.coming, &link.pulls}) {
    const Message message = take(*list, id);
    if (!message) continue;
    message->fail(given_up_error(message->envelope));
  }
  matcher_.matching().drop([&](const Message& message) {  // a message without a receive is removed
    return message->announced && message->id == id && &message->route == this && message->envelope.source == link.rank;
  });
}

}  // namespace ringcomm
