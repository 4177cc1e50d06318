#include "collectives/departures.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/rank_text.hpp"
#include "base/wait.hpp"

namespace ringcomm {
namespace {

// ns between two looks: a probe takes as long as a small message's other costs, a look at processes a system call
constexpr std::int64_t kProbeEvery = 100'000, kLookEvery = 10'000'000;

}  // namespace

Departures::Departures(Transport& transport, std::span<const int> peers, int me, int tag)
    : transport_(transport), peers_(peers), me_(me) {
  if (tag >= 0 && peers.size() > 1) mail_.emplace(transport, tag);
}

void Departures::check() {
  const std::int64_t now = now_ns();
  if (now - probed_ns_ >= kProbeEvery) {
    probed_ns_ = now;
    check_goodbyes();
  }
  if (now - looked_ns_ >= kLookEvery) {
    looked_ns_ = now;
    look_for_deaths();
  }
}

void Departures::check_goodbyes() {
  if (!mail_) return;
  while (const auto letter = mail_->receive()) {
    Goodbye goodbye;
    if (letter->bytes.size() != sizeof goodbye) throw Error(ErrorKind::internal, "a malformed goodbye", {letter->peer});
    std::memcpy(&goodbye, letter->bytes.data(), sizeof goodbye);
    departed_.push_back(goodbye);
  }
  std::vector<int> gone;
  for (const Goodbye& goodbye : departed_) {
    if (goodbye.calls < calls_) gone.push_back(static_cast<int>(goodbye.rank));
  }
  if (gone.empty()) return;
  throw Error(ErrorKind::left,
              rank_text(gone) + " closed the communicator or ended its script, and takes part in no further call",
              gone);
}

void Departures::look_for_deaths() {
  if (!deaths_.watches()) return;
  const auto has_left = [this](int rank) {
    return std::any_of(departed_.begin(), departed_.end(), [rank](const Goodbye& one) { return one.rank == rank; });
  };
  const std::vector<int> dead = deaths_.look(has_left);
  if (!dead.empty()) throw Error(ErrorKind::peer_lost, rank_text(dead) + " died: the process has ended", dead);
}

void Departures::say_goodbye(bool within_call) noexcept {
  if (!mail_) return;
  const Goodbye goodbye{me_, calls_ - (within_call ? 1 : 0)};
  std::vector<std::byte> bytes(sizeof goodbye);
  std::memcpy(bytes.data(), &goodbye, sizeof goodbye);
  try {
    for (const int peer : peers_) {
      if (peer != transport_.rank()) mail_->send(peer, bytes);
    }
    // A few bytes: they are sent immediately, unless the peer is gone.
    Backoff backoff(std::chrono::microseconds(100));
    const auto look = [&] {
      const bool moved = transport_.poll();
      mail_->advance();
      return !mail_->sending() ? Progress::done : moved ? Progress::moved : Progress::blocked;
    };
    wait_until(look, backoff, now_ns() + 1'000'000'000);
  } catch (const Error&) {  // the peer is gone
  }
  mail_->close();
}

}  // namespace ringcomm
