// Messages between ranks beside the collectives. A service receives messages from any rank, of any
// length, at any time, and may answer later. The parameter server between hosts is a service.
//
// The engine's worker runs it. After activity it polls every 100 us for a while, later every 4 ms
// while the service listens, and immediately after Engine::wake().
#pragma once

#include "base/error.hpp"
#include "transport/mail.hpp"

namespace ringcomm {

// A service; the worker calls all its functions.
class Service {
 public:
  virtual ~Service() = default;
  virtual bool turn(Mail& mail) = 0;                  // true if anything moved. Throws Error, fatal to the engine
  virtual bool listens() const { return true; }       // messages may arrive unexpectedly. Called after turn()
  virtual void left(int rank, const Error& why) = 0;  // called when `rank` has left: it answers no more
  virtual void end(const Error& why) = 0;             // this rank has left, or a rank died: no more turns follow
};

}  // namespace ringcomm
