// Counts the traffic of a transport: messages sent (when posted) and received (when complete).
#pragma once

#include <memory>
#include <utility>

#include "base/account.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

class CountedTransport final : public Transport {
 public:
  // The counts must outlive the transport.
  CountedTransport(std::shared_ptr<Transport> inner, Traffic& sent, Traffic& received)
      : inner_(std::move(inner)), sent_(sent), received_(received) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int tag_limit() const override { return inner_->tag_limit(); }
  Ticket send(int peer, int tag, const void* data, std::size_t nbytes) override {
    const Ticket ticket = inner_->send(peer, tag, data, nbytes);
    sent_.add(nbytes);
    return ticket;
  }
  Ticket receive(int peer, int tag, void* data, std::size_t nbytes) override {
    return inner_->receive(peer, tag, data, nbytes);
  }
  bool probe(int peer, int tag, Found& found) override { return inner_->probe(peer, tag, found); }
  Ticket receive(const Found& found, void* data) override { return inner_->receive(found, data); }
  bool poll() override { return inner_->poll(); }
  bool yields() const override { return inner_->yields(); }
  bool done(Ticket ticket, Arrival* arrival) override {
    Arrival what;
    if (!inner_->done(ticket, &what)) return false;
    if (what.received) received_.add(what.nbytes);
    if (arrival) *arrival = what;
    return true;
  }
  void cancel(Ticket ticket) noexcept override { inner_->cancel(ticket); }
  std::size_t in_flight() const override { return inner_->in_flight(); }
  bool takes_device_memory() const override { return inner_->takes_device_memory(); }
  MessageCounts counts() const override { return inner_->counts(); }

 private:
  const std::shared_ptr<Transport> inner_;
  Traffic &sent_, &received_;
};

}  // namespace ringcomm
