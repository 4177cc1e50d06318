// Implements the exchange of goodbye messages, and the checks for ranks that left or died.
#include "collectives/departures.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"

namespace ringcomm {

Departures::Departures(Transport& transport, std::span<const int> peers, int me, int tag)
    : transport_(transport), peers_(peers), me_(me) {
  if (tag >= 0 && peers.size() > 1) mail_.emplace(transport, tag);
}

void Departures::check() {
  if (probe_.at(now_ns())) check_goodbyes();
  if (monitor_.due()) look_for_deaths();
}

void Departures::check_goodbyes() {
  if (!mail_) return;
  while (const auto message = mail_->receive()) {
    Goodbye goodbye;
    if (message->bytes.size() != sizeof goodbye)
      throw Error(ErrorKind::internal, "the message of a leaving rank is malformed", {message->peer});
    std::memcpy(&goodbye, message->bytes.data(), sizeof goodbye);
    departed_.push_back(goodbye);
  }
  std::vector<int> departed;
  for (const Goodbye& goodbye : departed_) {
    if (goodbye.calls < calls_) departed.push_back(static_cast<int>(goodbye.rank));
  }
  if (!departed.empty()) throw left_error(departed);
}

void Departures::look_for_deaths() {
  if (!monitor_.watches()) return;
  const auto has_left = [this](int rank) {
    return std::any_of(departed_.begin(), departed_.end(),
                       [rank](const Goodbye& goodbye) { return goodbye.rank == rank; });
  };
  if (const std::vector<int> dead = monitor_.dead(has_left); !dead.empty()) throw died_error(dead);
}

void Departures::send_goodbye(bool within_call) noexcept {
  if (!mail_) return;
  const Goodbye goodbye{me_, calls_ - (within_call ? 1 : 0)};
  std::vector<std::byte> bytes(sizeof goodbye);
  std::memcpy(bytes.data(), &goodbye, sizeof goodbye);
  try {
    for (const int peer : peers_) {
      if (peer != transport_.rank()) mail_->send(peer, bytes);
    }
    // A send of a few bytes completes immediately, unless the peer died.
    Backoff backoff(std::chrono::microseconds(100));
    const auto look = [&] {
      const bool moved = transport_.poll();
      mail_->advance();
      return !mail_->sending() ? Progress::done : moved ? Progress::moved : Progress::blocked;
    };
    wait_until(look, backoff, now_ns() + 1'000'000'000);
  } catch (const Error&) {  // the peer died
  }
  mail_->close();
}

}  // namespace ringcomm
