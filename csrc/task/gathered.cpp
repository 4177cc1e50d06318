#include "task/gathered.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace ringcomm {
namespace {
std::size_t rounded(std::size_t nbytes) { return (nbytes + kPieceAlign - 1) / kPieceAlign * kPieceAlign; }
}  // namespace

Gathering::Gathering(Transport& transport, std::span<const int> peers, int me, int tag, std::size_t most)
    : transport_(transport), peers_(peers.begin(), peers.end()), me_(me), tag_(tag), most_(rounded(sizeof(Head) + most)),
      pieces_(most_ * peers.size()) {}

void Gathering::give(std::uint64_t digest, std::size_t nbytes) {
  const Head head{digest, nbytes};
  std::memcpy(pieces_.data(), &head, sizeof head);
  end_ = rounded(sizeof head + nbytes);
  held_ = 1;
}

std::size_t Gathering::behind(std::size_t begin, std::size_t count) const {
  for (; count > 0; --count) {
    Head head;
    if (begin + sizeof head > end_) throw Error(ErrorKind::transport, "a message of the comparison of calls is too short");
    std::memcpy(&head, pieces_.data() + begin, sizeof head);
    if (head.nbytes > most_ - sizeof head) throw Error(ErrorKind::transport, "a message of the comparison of calls is malformed");
    begin += rounded(sizeof head + head.nbytes);
  }
  return begin;
}

void Gathering::start_round() {
  const std::size_t size = peers_.size(), distance = held_, count = std::min(held_, size - held_);
  const auto at = static_cast<std::size_t>(me_);
  receiving_ = transport_.receive(peers_[(at + distance) % size], tag_, pieces_.data() + end_, count * most_);
  sending_ = transport_.send(peers_[(at + size - distance) % size], tag_, pieces_.data(), behind(0, count));
}

Progress Gathering::advance() {
  if (held_ == peers_.size()) {
    if (found_.empty()) look();
    return Progress::done;
  }
  if (receiving_ == kNoTicket && sending_ == kNoTicket) start_round();
  transport_.poll();
  bool moved = false;
  Arrival arrival;
  if (receiving_ != kNoTicket && transport_.done(receiving_, &arrival)) {
    receiving_ = kNoTicket;
    const std::size_t count = std::min(held_, peers_.size() - held_), begin = end_;
    end_ += arrival.nbytes;
    if (behind(begin, count) != end_) throw Error(ErrorKind::transport, "a message of the comparison of calls is too long");
    arrived_ = count;
    moved = true;
  }
  if (sending_ != kNoTicket && transport_.done(sending_)) {
    sending_ = kNoTicket;
    moved = true;
  }
  if (!moved) return Progress::blocked;
  if (receiving_ != kNoTicket || sending_ != kNoTicket) return Progress::moved;
  held_ += std::exchange(arrived_, 0);
  return Progress::moved;
}

void Gathering::look() {
  found_.resize(peers_.size());
  std::uint64_t first = 0;
  std::memcpy(&first, pieces_.data(), sizeof first);
  for (std::size_t i = 0, begin = 0; i < found_.size(); begin = behind(begin, 1), ++i) {
    std::uint64_t digest;
    std::memcpy(&digest, pieces_.data() + begin, sizeof digest);
    alike_ = alike_ && digest == first && digest != kUnlike;
    found_[(static_cast<std::size_t>(me_) + i) % found_.size()] = pieces_.data() + begin + sizeof(Head);
  }
}

void Gathering::abandon() noexcept {
  if (receiving_ == kNoTicket && sending_ == kNoTicket) return;
  for (Ticket* ticket : {&receiving_, &sending_}) {
    if (*ticket == kNoTicket) continue;
    try {
      transport_.cancel(std::exchange(*ticket, kNoTicket));
    } catch (const std::exception&) {  // it cannot be helped
    }
  }
  if (transport_.in_flight() > 0) pieces_.strand();
}

}  // namespace ringcomm
