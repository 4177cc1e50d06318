// Implements Matcher and Incoming: matching, size checks, and delivery of data.
#include "p2p/matcher.hpp"

#include <utility>

#include "kernels/kernels.hpp"

namespace ringcomm {

constexpr std::uint64_t kPastCaches = 12 << 20;  // bytes; caches hold shorter messages until they are used

void Incoming::deliver(const void* data, std::size_t nbytes) {
  const bool past_caches = envelope.nbytes >= kPastCaches;
  if ((into || kept) && !dropped) kernels::copy(next(), data, nbytes, past_caches);
  arrived += nbytes;
}

void Incoming::finish() {
  if (!into) return;
  into->status = envelope;
  route.count_receive(*into);
  into->finish();
  into = nullptr;
}

void Incoming::fail(const Error& why) {
  dropped = true;
  lost = why;
  if (!into) return;
  into->status = envelope;
  into->fail(why);
  into = nullptr;
}

bool Matcher::check_room(Request& receive, const Envelope& envelope) const {
  if (envelope.nbytes <= receive.nbytes) return true;
  receive.status = envelope;
  receive.fail(Error(ErrorKind::mismatch,
                     "truncated: rank " + std::to_string(envelope.source) + " sends " +
                         std::to_string(envelope.nbytes) + " bytes with tag " + std::to_string(envelope.tag) +
                         ", but rank " + std::to_string(rank_) + " receives into " + std::to_string(receive.nbytes) +
                         " bytes; receive into a larger array (probe() returns the size of a message)",
                     {envelope.source}));
  return false;
}

Request* Matcher::match(const Envelope& envelope, bool& refused) {
  refused = false;
  const auto found = matching_.arrive(envelope);
  if (!found) return nullptr;
  refused = !check_room(**found, envelope);
  return refused ? nullptr : *found;
}

void Matcher::keep(std::shared_ptr<Incoming> message) {
  const Envelope envelope = message->envelope;
  matching_.keep(envelope, std::move(message));
}

void Matcher::receive(Request& receive) {
  auto found = matching_.want(receive.peer, receive.tag);
  if (!found) return matching_.post(receive.peer, receive.tag, &receive);
  Incoming& message = **found;
  if (message.lost) {
    receive.status = message.envelope;
    return receive.fail(*message.lost);
  }
  message.dropped = !check_room(receive, message.envelope);
  if (!message.dropped) {
    message.into = &receive;
    const std::uint64_t here = std::exchange(message.arrived, 0);
    if (message.kept) message.deliver(message.kept.get(), here);
    message.kept.reset();
  }
  if (message.whole() && !message.announced) return message.finish();
  message.route.matched(*found);
}

}  // namespace ringcomm
