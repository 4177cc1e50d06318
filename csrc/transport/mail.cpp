// Implements Mail: starts a receive for each message that a probe finds, and delivers each sender's
// messages in order.
#include "transport/mail.hpp"

#include <set>
#include <utility>

namespace ringcomm {

void Mail::send(int peer, std::vector<std::byte> bytes) {
  if (closed_) return;
  std::list<Moving> one;
  Moving& message = one.emplace_back(Moving{kNoTicket, {peer, std::move(bytes)}});
  message.ticket = transport_.send(peer, tag_, message.letter.bytes.data(), message.letter.bytes.size());
  going_.splice(going_.end(), one);
}

void Mail::collect() {
  for (Found found; transport_.probe(kAnyPeer, tag_, found);) {
    Moving& message = coming_.emplace_back(Moving{kNoTicket, {found.arrival.peer, {}}});
    message.letter.bytes.resize(found.arrival.nbytes);
    message.ticket = transport_.receive(found, message.letter.bytes.data());
  }
}

std::optional<Letter> Mail::receive() {
  if (closed_) return std::nullopt;
  if (auto letter = take()) return letter;
  collect();
  if (!moving()) return std::nullopt;
  transport_.poll();
  return take();
}

std::optional<Letter> Mail::take() {
  std::set<int> late;  // ranks with an earlier, incomplete message
  for (auto message = coming_.begin(); message != coming_.end(); ++message) {
    const int peer = message->letter.peer;
    if (late.contains(peer)) continue;
    message->arrived = message->arrived || transport_.done(message->ticket);
    if (!message->arrived) {
      late.insert(peer);
      continue;
    }
    Letter letter = std::move(message->letter);
    coming_.erase(message);
    return letter;
  }
  return std::nullopt;
}

void Mail::advance() {
  std::erase_if(going_, [&](const Moving& message) { return transport_.done(message.ticket); });
}

void Mail::forget(int peer) {
  for (Moving& message : going_) {
    if (message.letter.peer != peer) continue;
    transport_.cancel(message.ticket);
    kept_.push_back(std::move(message.letter));
  }
  std::erase_if(going_, [&](const Moving& message) { return message.letter.peer == peer; });
}

void Mail::close() noexcept {
  closed_ = true;
  for (const Moving& message : coming_) {
    if (!message.arrived) transport_.cancel(message.ticket);
  }
  for (const Moving& message : going_) transport_.cancel(message.ticket);
  coming_.clear();
  for (Moving& message : going_) kept_.push_back(std::move(message.letter));
  going_.clear();
}

}  // namespace ringcomm
