// Implements Mail: receives each message that a probe finds, and keeps the order of each sender.
#include "transport/mail.hpp"

#include <set>
#include <utility>

namespace ringcomm {

void Mail::send(int peer, std::vector<std::byte> bytes) {
  if (closed_) return;
  std::list<Transfer> single;
  Transfer& transfer = single.emplace_back(Transfer{kNoTicket, {peer, std::move(bytes)}});
  transfer.ticket = transport_.send(peer, tag_, transfer.message.bytes.data(), transfer.message.bytes.size());
  sending_.splice(sending_.end(), single);
}

void Mail::collect() {
  for (Found found; transport_.probe(kAnyPeer, tag_, found);) {
    Transfer& transfer = receiving_.emplace_back(Transfer{kNoTicket, {found.arrival.peer, {}}});
    transfer.message.bytes.resize(found.arrival.nbytes);
    transfer.ticket = transport_.receive(found, transfer.message.bytes.data());
  }
}

std::optional<MailMessage> Mail::receive() {
  if (closed_) return std::nullopt;
  if (auto message = take()) return message;
  collect();
  if (!moving()) return std::nullopt;
  transport_.poll();
  return take();
}

std::optional<MailMessage> Mail::take() {
  std::set<int> late;  // ranks with an earlier, incomplete message
  for (auto transfer = receiving_.begin(); transfer != receiving_.end(); ++transfer) {
    const int peer = transfer->message.peer;
    if (late.contains(peer)) continue;
    transfer->arrived = transfer->arrived || transport_.done(transfer->ticket);
    if (!transfer->arrived) {
      late.insert(peer);
      continue;
    }
    MailMessage message = std::move(transfer->message);
    receiving_.erase(transfer);
    return message;
  }
  return std::nullopt;
}

void Mail::advance() {
  std::erase_if(sending_, [&](const Transfer& transfer) { return transport_.done(transfer.ticket); });
}

void Mail::forget(int peer) {
  for (Transfer& transfer : sending_) {
    if (transfer.message.peer != peer) continue;
    transport_.cancel(transfer.ticket);
    kept_.push_back(std::move(transfer.message));
  }
  std::erase_if(sending_, [&](const Transfer& transfer) { return transfer.message.peer == peer; });
}

void Mail::close() noexcept {
  closed_ = true;
  for (const Transfer& transfer : receiving_) {
    if (!transfer.arrived) transport_.cancel(transfer.ticket);
  }
  for (const Transfer& transfer : sending_) transport_.cancel(transfer.ticket);
  receiving_.clear();
  for (Transfer& transfer : sending_) kept_.push_back(std::move(transfer.message));
  sending_.clear();
}

}  // namespace ringcomm
