#include "call/departures.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/rank_text.hpp"
#include "base/wait.hpp"

namespace ringcomm {
namespace {

constexpr std::int64_t kLookEvery = 10'000'000;  // ns between two looks at who has died

}  // namespace

Departures::Departures(Transport& transport, std::span<const int> peers, int me, int tag)
    : transport_(transport), peers_(peers), me_(me), tag_(peers.size() > 1 ? tag : -1) {
  listen();
}

Departures::~Departures() { transport_.cancel(listening_); }

void Departures::listen() {
  if (tag_ >= 0) listening_ = transport_.receive(kAnyPeer, tag_, &incoming_, sizeof incoming_);
}

void Departures::check() {
  check_goodbyes();
  look_for_deaths();
}

void Departures::check_goodbyes() {
  while (listening_ != kNoTicket && transport_.done(listening_)) {
    departed_.push_back(incoming_);
    listen();
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
  const std::int64_t now = now_ns();
  if (now - looked_ns_ < kLookEvery) return;
  looked_ns_ = now;
  const auto has_left = [this](int rank) {
    return std::any_of(departed_.begin(), departed_.end(), [rank](const Goodbye& one) { return one.rank == rank; });
  };
  const std::vector<int> dead = deaths_.look(has_left);
  if (!dead.empty()) throw Error(ErrorKind::peer_lost, rank_text(dead) + " died: the process has ended", dead);
}

void Departures::say_goodbye(bool within_call) noexcept {
  if (tag_ < 0) return;
  outgoing_ = {me_, calls_ - (within_call ? 1 : 0)};
  std::vector<Ticket> tickets;
  try {
    for (const int peer : peers_) {
      if (peer != transport_.rank()) tickets.push_back(transport_.send(peer, tag_, &outgoing_, sizeof outgoing_));
    }
    // A few bytes: they are on their way at once, or the peer is gone.
    Backoff backoff(std::chrono::microseconds(100));
    const auto look = [&] {
      const bool moved = transport_.poll();
      std::erase_if(tickets, [&](Ticket ticket) { return transport_.done(ticket); });
      return tickets.empty() ? Progress::done : moved ? Progress::moved : Progress::blocked;
    };
    wait_until(look, backoff, now_ns() + 1'000'000'000);
  } catch (const Error&) {  // nobody to say goodbye to
  }
  for (const Ticket ticket : tickets) transport_.cancel(ticket);
}

}  // namespace ringcomm
