// Implements the exchange: rounds of dissemination, or of recursive doubling with merging.
#include "collectives/consistency/piece_exchange.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace ringcomm {
namespace {
constexpr std::size_t rounded(std::size_t nbytes) { return round_up(nbytes, kPieceAlign); }
}  // namespace

PieceExchange::PieceExchange(Transport& transport, std::span<const int> peers, int me, std::size_t most)
    : transport_(transport), peers_(peers), me_(me), doubles_(can_merge(peers.size())),
      most_(rounded(sizeof(Head) + most)) {}

std::byte* PieceExchange::open(int tag) {
  pieces_.require(most_ * peers_.size());
  tag_ = tag;
  identical_ = true;
  found_.clear();
  return mine();
}

void PieceExchange::post(std::uint64_t digest, std::size_t nbytes, Merge merge, std::uint32_t balance) {
  const Head head{digest, static_cast<std::uint32_t>(nbytes), balance};
  std::memcpy(pieces_.data(), &head, sizeof head);
  end_ = rounded(sizeof head + nbytes);
  held_ = 1;
  merge_ = std::move(merge);
}

void PieceExchange::post_nothing() {
  post(0, 0);
  identical_ = false;
}

std::size_t PieceExchange::behind(std::size_t begin, std::size_t count) const {
  for (; count > 0; --count) {
    Head head;
    if (begin + sizeof head > end_)
      throw Error(ErrorKind::transport, "a message of the consistency check is too short");
    std::memcpy(&head, pieces_.data() + begin, sizeof head);
    if (head.nbytes > most_ - sizeof head)
      throw Error(ErrorKind::transport, "a message of the consistency check is malformed");
    begin += rounded(sizeof head + head.nbytes);
  }
  return begin;
}

// Starts the send and the receive of a round. A message shorter than a head means that some digests
// differ.
void PieceExchange::start_round() {
  const std::size_t size = peers_.size(), distance = held_;
  const auto at = static_cast<std::size_t>(me_);
  const std::size_t from = doubles_ ? at ^ distance : (at + distance) % size,
                    to = doubles_ ? from : (at + size - distance) % size;
  receiving_ = transport_.receive(peers_[from], tag_, pieces_.data() + end_, coming() * most_);
  sending_ = transport_.send(peers_[to], tag_, pieces_.data(), !identical_ ? 1 : merge_ ? end_ : behind(0, coming()));
}

Progress PieceExchange::advance() {
  if (held_ == peers_.size()) {
    if (identical_ && found_.empty()) find();
    return Progress::done;
  }
  if (receiving_ == kNoTicket && sending_ == kNoTicket) start_round();
  transport_.poll();
  bool moved = false;
  Arrival arrival;
  if (receiving_ != kNoTicket && transport_.done(receiving_, &arrival)) {
    receiving_ = kNoTicket;
    arrived_ = arrival.nbytes;
    moved = true;
  }
  if (sending_ != kNoTicket && transport_.done(sending_)) {
    sending_ = kNoTicket;
    moved = true;
  }
  if (!moved) return Progress::blocked;
  if (receiving_ == kNoTicket && sending_ == kNoTicket) end_round();
  return Progress::moved;
}

void PieceExchange::end_round() {
  const std::size_t begin = end_, count = coming(), distance = held_;
  held_ += count;
  Head ours, theirs;
  identical_ = identical_ && arrived_ >= sizeof theirs;
  if (!identical_) return;
  std::memcpy(&ours, pieces_.data(), sizeof ours);
  std::memcpy(&theirs, pieces_.data() + begin, sizeof theirs);
  identical_ = ours.digest == theirs.digest;
  if (!identical_) return;
  end_ += arrived_;
  if (behind(begin, merge_ ? 1 : count) != end_ || (merge_ && ours.nbytes != theirs.nbytes)) {
    throw Error(ErrorKind::transport, "the length of a message of the consistency check does not match its header");
  }
  if (!merge_) return;
  end_ = begin;
  const std::byte* const other = pieces_.data() + begin + sizeof theirs;
  const bool lower = (static_cast<std::size_t>(me_) & distance) == 0;
  if (ours.nbytes > 0) merge_(mine(), lower ? mine() : other, lower ? other : mine());
  ours.balance += theirs.balance;
  std::memcpy(pieces_.data(), &ours, sizeof ours);
}

void PieceExchange::find() {
  const auto balance_at = [this](std::size_t begin) {
    Head head;
    std::memcpy(&head, pieces_.data() + begin, sizeof head);
    return head.balance;
  };
  if (merge_) {
    found_.push_back(mine());
    identical_ = balance_at(0) == 0;
    return;
  }
  found_.resize(peers_.size());
  std::uint32_t balance = 0;
  for (std::size_t i = 0, begin = 0; i < found_.size(); begin = behind(begin, 1), ++i) {
    balance += balance_at(begin);
    const auto at = static_cast<std::size_t>(me_);
    found_[doubles_ ? at ^ i : (at + i) % found_.size()] = pieces_.data() + begin + sizeof(Head);
  }
  identical_ = balance == 0;
}

void PieceExchange::abandon() noexcept {
  if (receiving_ == kNoTicket && sending_ == kNoTicket) return;
  for (Ticket* const ticket : {&receiving_, &sending_}) transport_.cancel(std::exchange(*ticket, kNoTicket));
  if (transport_.in_flight() > 0) pieces_.leak();
}

}  // namespace ringcomm
