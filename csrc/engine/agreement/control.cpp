// Implements Control on Mail.
#include "engine/agreement/control.hpp"

#include <algorithm>
#include <utility>

namespace ringcomm {

namespace {
constexpr int kMostMessages = 256;  // received in one call, so that the worker's other tasks get a turn
}

void Control::send(int peer, const Bytes& encoded) {
  Bytes& box = outbox_[peer];
  box.insert(box.end(), encoded.begin(), encoded.end());
}

void Control::send_to_all(const Record& record, std::span<const int> except) noexcept {
  Bytes encoded;
  encode(record, encoded);
  for (int peer = 0; peer < mail_.size(); ++peer) {
    if (peer == mail_.rank() || contains(except, peer)) continue;
    try {
      send(peer, encoded);
      flush();
    } catch (const Error&) {  // the peer is lost
    }
  }
}

void Control::flush() {
  for (auto& [peer, box] : outbox_) {
    if (!box.empty()) mail_.send(peer, std::exchange(box, {}));
  }
}

bool Control::sending() {
  mail_.advance();
  return mail_.sending();
}

bool Control::receive(const std::function<void(int peer, Record record)>& handle) {
  int taken = 0;
  for (; taken < kMostMessages; ++taken) {
    const auto message = mail_.receive();
    if (!message) break;
    for (Record& record : decode(message->bytes)) handle(message->peer, std::move(record));
  }
  return taken > 0;
}

}  // namespace ringcomm
