// Implements the messages of a round: posts them in chunks, and unpacks those that arrived.
#include "executor/round_messages.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringcomm {

void RoundMessages::prepare(const RoundProgram& round) {
  round_ = round;
  const std::vector<Message>& messages = context_.program.messages;
  incoming_.assign(round.end - round.first_receive, {});
  pieces_.assign(round.end_piece - round.first_received_piece, {});
  std::size_t receives = 0, sends = 0;
  Bytes whole;
  for (std::uint32_t m = round.first_receive; m < round.end; ++m) {
    Incoming& incoming = incoming_[m - round.first_receive];
    incoming.plain = messages[m].plain && packing_.is_plain(messages[m], whole);
    incoming.bytes = {whole.data, packing_.capacity(messages[m])};
    if (!incoming.plain) receives += aligned(incoming.bytes.nbytes);
  }
  for (std::uint32_t m = round.first_send; m < round.first_receive; ++m)
    if (!packing_.is_plain(messages[m], whole)) sends += aligned(packing_.capacity(messages[m]));
  memory_.require(receives + sends);
  std::byte* free = memory_.data();
  sends_from_ = free + receives;
  for (Incoming& incoming : incoming_) {
    if (incoming.plain) continue;
    incoming.bytes.data = free;
    free += aligned(incoming.bytes.nbytes);
  }
}

void RoundMessages::post_receives(int tag, bool early) {
  for (std::uint32_t index = 0; index < incoming_.size(); ++index) {
    Incoming& incoming = incoming_[index];
    if (incoming.posted || (early && incoming.plain && !received(index).untouched)) continue;
    incoming.posted = true;
    const int peer = context_.peer(received(index));
    for (std::size_t at = 0; at < incoming.bytes.nbytes;) {
      const std::size_t chunk = std::min(incoming.bytes.nbytes - at, context_.options.longest_message);
      receives_.push_back({kNoTicket, index, chunk, false});
      receives_.back().ticket = context_.transport.receive(peer, tag, incoming.bytes.data + at, chunk);
      ++incoming.pending;
      at += chunk;
    }
  }
}

void RoundMessages::post_sends(int tag) {
  std::byte* free = sends_from_;
  for (std::uint32_t m = round_.first_send; m < round_.first_receive; ++m)
    post_send(context_.program.messages[m], tag, free);
}

// Sends a message in chunks. The receiver knows the capacity but not the encoded size, so both
// ranks derive the number of chunks from the capacity. The last chunks may be short or empty.
void RoundMessages::post_send(const Message& message, int tag, std::byte*& free) {
  const std::size_t capacity = packing_.capacity(message), longest = context_.options.longest_message;
  if (capacity == 0) return;
  Bytes bytes;
  const bool plain = packing_.is_plain(message, bytes);
  if (!plain) {
    bytes = packing_.pack(message, free);
    free += aligned(capacity);
  }
  for (std::size_t at = 0; at < capacity; at += std::min(longest, capacity - at)) {
    const std::size_t begin = std::min(at, bytes.nbytes);
    const std::size_t chunk = std::min(longest, bytes.nbytes - begin);
    sends_.push_back({kNoTicket, 0, chunk, plain});
    sends_.back().ticket = context_.transport.send(context_.peer(message), tag, bytes.data + begin, chunk);
    reading_blocks_ += plain;
  }
}

bool RoundMessages::collect(std::vector<Flight>& flights, bool receiving) {
  bool moved = false;
  for (std::size_t i = 0; i < flights.size();) {
    const Flight flight = flights[i];
    Arrival arrival;
    try {
      if (!context_.transport.done(flight.ticket, &arrival)) {
        ++i;
        continue;
      }
    } catch (...) {
      flights[i].ticket = kNoTicket;  // the ticket is invalid now
      throw;
    }
    flights[i] = flights.back();
    flights.pop_back();
    moved = true;
    if (receiving)
      receive(flight, arrival);
    else
      reading_blocks_ -= flight.plain;
  }
  return moved;
}

void RoundMessages::receive(const Flight& flight, const Arrival& arrival) {
  Incoming& incoming = incoming_[flight.message];
  if (!context_.options.codec && arrival.nbytes != flight.nbytes) {
    throw Error(ErrorKind::mismatch,
                concat("rank ", arrival.peer, " sent ", arrival.nbytes, " bytes where rank ", context_.transport.rank(),
                       " expected ", flight.nbytes, ": the ranks disagree on the size of the data"),
                {arrival.peer});
  }
  incoming.arrived += arrival.nbytes;
  if (--incoming.pending > 0 || incoming.plain) return;
  const Message& message = received(flight.message);
  packing_.unpack(
      message, {incoming.bytes.data, incoming.arrived},
      std::span(pieces_).subspan(message.first - round_.first_received_piece, message.last - message.first));
}

bool RoundMessages::abandon() noexcept {
  const bool any = !over();
  for (std::vector<Flight>* const flights : {&receives_, &sends_}) {
    for (const Flight& flight : *flights) context_.transport.cancel(flight.ticket);
    flights->clear();
  }
  return any;
}

}  // namespace ringcomm
