// A store between ranks that share no memory: each rank's worker sends requests and answers them.
// The owner's script takes no part, and the GIL is not needed.
//
//    worker of rank r              rank s, which owns a shard
//    ─────────────────             ──────────────────────────
//    request ─────────────────────►  due? apply the rule under the stripes' locks, as ranks of that host do
//    result of that segment ◄──────  answer: delayed, if the consistency requires it
#pragma once

#include <memory>

#include "engine/worker/service.hpp"
#include "param_server/client.hpp"
#include "param_server/server.hpp"

namespace ringcomm::store {

class Service final : public ringcomm::Service {
 public:
  Server server;
  Client client;

  bool turn(Mail& mail) override;
  void left(int rank, const Error& why) override;
  void end(const Error& why) override { client.end(why); }
  bool listens() const override { return server.serves() || client.waits(); }
};

}  // namespace ringcomm::store
