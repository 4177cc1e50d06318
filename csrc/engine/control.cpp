#include "engine/control.hpp"

#include <algorithm>
#include <utility>

#include "engine/tags.hpp"

namespace ringcomm {

namespace {
constexpr int kMostMessages = 256;  // messages taken before others get their turn
}

void Control::send(int peer, const Bytes& encoded) {
  Bytes& box = outbox_[peer];
  box.insert(box.end(), encoded.begin(), encoded.end());
}

void Control::send_to_all(const Record& record, std::span<const int> except) noexcept {
  Bytes encoded;
  encode(record, encoded);
  for (int peer = 0; peer < transport_.size(); ++peer) {
    if (peer == transport_.rank() || contains(except, peer)) continue;
    try {
      send(peer, encoded);
      flush();
    } catch (const Error&) {  // lost
    }
  }
}

void Control::flush() {
  if (closed_) return outbox_.clear();
  for (auto& [peer, box] : outbox_) {
    const Bytes bytes = std::exchange(box, {});
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t length = std::min(bytes.size() - at, kCapacity - 1);
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      Bytes message{std::byte{at + length < bytes.size()}};
      message.insert(message.end(), begin, begin + static_cast<std::ptrdiff_t>(length));
      Outgoing& out = outgoing_.emplace_back(Outgoing{kNoTicket, std::move(message)});
      out.ticket = transport_.send(peer, TagMap::kControl, out.bytes.data(), out.bytes.size());
      at += length;
    }
  }
}

bool Control::sending() {
  std::erase_if(outgoing_, [&](const Outgoing& m) { return m.ticket == kNoTicket || transport_.done(m.ticket); });
  return !outgoing_.empty();
}

bool Control::receive(const std::function<void(int peer, Record record)>& handle) {
  if (closed_) return false;
  int taken = 0;
  for (; taken < kMostMessages; ++taken) {
    if (listening_ == kNoTicket) {
      incoming_.resize(kCapacity);
      listening_ = transport_.receive(kAnyPeer, TagMap::kControl, incoming_.data(), incoming_.size());
    }
    transport_.poll();
    Arrival arrival;
    if (!transport_.done(listening_, &arrival)) break;
    listening_ = kNoTicket;
    if (arrival.nbytes == 0) throw Error(ErrorKind::transport, "an empty control message", {arrival.peer});
    const bool more = incoming_[0] != std::byte{0};
    Bytes& whole = partial_[arrival.peer];
    whole.insert(whole.end(), incoming_.begin() + 1, incoming_.begin() + static_cast<std::ptrdiff_t>(arrival.nbytes));
    if (more) continue;
    for (Record& record : decode(std::exchange(whole, {}))) handle(arrival.peer, std::move(record));
  }
  return taken > 0;
}

void Control::close() noexcept {
  closed_ = true;
  transport_.cancel(std::exchange(listening_, kNoTicket));
  for (const Outgoing& message : outgoing_) transport_.cancel(message.ticket);
  outgoing_.clear();
  outbox_.clear();
}

}  // namespace ringcomm
