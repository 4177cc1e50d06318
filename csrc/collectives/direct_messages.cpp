// Implements direct messages in chunks of at most the longest message.
#include "collectives/direct_messages.hpp"

namespace ringcomm {

void DirectMessages::begin() {
  context_.departures.begin_call();
  tag_ = context_.tags.next();
}

template <class Post>
void DirectMessages::post(std::size_t nbytes, Post post) {
  for (std::size_t at = 0; at < nbytes;) {
    const std::size_t chunk = std::min(longest_, nbytes - at);
    flights_.push_back({kNoTicket, chunk});
    flights_.back().ticket = post(at, chunk);
    at += chunk;
  }
}

void DirectMessages::send(int rank, const void* data, std::size_t nbytes) {
  const int peer = context_.peers[static_cast<std::size_t>(rank)];
  post(nbytes, [&](std::size_t begin, std::size_t chunk) {
    return context_.transport->send(peer, tag_, at(data, begin), chunk);
  });
}

void DirectMessages::receive(int rank, void* data, std::size_t nbytes) {
  const int peer = context_.peers[static_cast<std::size_t>(rank)];
  post(nbytes, [&](std::size_t begin, std::size_t chunk) {
    return context_.transport->receive(peer, tag_, at(data, begin), chunk);
  });
}

bool DirectMessages::over(const Flight& flight) const {
  Arrival arrival;
  if (!context_.transport->done(flight.ticket, &arrival)) return false;
  if (!arrival.received || arrival.nbytes == flight.nbytes) return true;
  throw Error(ErrorKind::mismatch,
              concat("rank ", arrival.peer, " sent ", arrival.nbytes, " bytes where ", flight.nbytes,
                     " were expected: the ranks disagree on the size of the data"),
              {arrival.peer});
}

Progress DirectMessages::advance() {
  context_.transport->poll();
  const std::size_t removed = std::erase_if(flights_, [&](const Flight& flight) { return over(flight); });
  if (flights_.empty()) return Progress::done;
  if (removed > 0) return Progress::moved;
  context_.departures.check();
  return Progress::blocked;
}

bool DirectMessages::abandon() noexcept {
  const bool any = !flights_.empty();
  for (const Flight& flight : flights_) context_.transport->cancel(flight.ticket);
  flights_.clear();
  return any;
}

}  // namespace ringcomm
