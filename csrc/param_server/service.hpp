// A store between ranks that share no memory. Each rank's worker sends this rank's requests, and
// answers the requests of other ranks. The owner's script takes no part; the GIL is not needed.
//
//    worker of rank r              rank s, which owns a shard
//    ─────────────────             ──────────────────────────
//    request ─────────────────────►  once it is due (messages.hpp), apply its rule to the shard
//    result of that segment ◄──────  answer
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
