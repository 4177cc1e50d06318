// Messages between ranks beside the collectives. A service takes what any rank sends it, of any length, at any time,
// and answers when it likes. The parameter server between hosts is one.
//
// It lives on the engine's worker, which looks at it every 100 us for a while after something has moved, later every
// 3 ms while it listens; at once after Engine::wake().
#pragma once

#include "base/error.hpp"
#include "transport/mail.hpp"

namespace ringcomm {

// All of it is called by the worker.
class Service {
 public:
  virtual ~Service() = default;
  virtual bool turn(Mail& mail) = 0;             // true if anything moved. Throws Error, which is fatal to the engine
  virtual bool listens() const { return true; }  // something may come, whoever sends it. Asked after turn()
  virtual void left(int rank, const Error& why) = 0;  // that rank has left: it answers nothing more
  virtual void end(const Error& why) = 0;             // this rank has, or a rank died: no more turns come
};

}  // namespace ringcomm
