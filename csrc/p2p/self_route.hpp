// A rank's messages to itself. A send copies the data immediately, to the receive or to a buffer.
#pragma once

#include <cstring>
#include <memory>

#include "p2p/matcher.hpp"

namespace ringcomm {

class SelfRoute final : public MessageRoute {
 public:
  SelfRoute(int rank, Account& account, Matcher& matcher)
      : MessageRoute(account, "self"), rank_(rank), matcher_(matcher) {}

  void send(Request& send) override {
    const Envelope envelope{rank_, send.tag, send.nbytes};
    bool refused = false;
    Request* const receive = matcher_.match(envelope, refused);
    if (!refused) {
      const auto message = std::make_shared<Incoming>(*this, envelope, 0, receive, refused);
      message->deliver(send.data, send.nbytes);
      message->finish();
      if (!receive) matcher_.keep(message);
    }
    send.finish();
  }
  bool advance() override { return false; }
  void matched(const std::shared_ptr<Incoming>&) override {}
  bool withdraw(Request&) override { return true; }
  void replace(Request&, Request&) override {}
  void forget(int, const Error&) override {}

 private:
  const int rank_;
  Matcher& matcher_;
};

}  // namespace ringcomm
