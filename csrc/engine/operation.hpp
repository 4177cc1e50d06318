// The caller's handle of an asynchronous operation. The engine finishes it; the binding layer waits
// for it and reads its results.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <string>

#include "base/account.hpp"
#include "base/received.hpp"

namespace ringcomm {

// Read the base's members after done(). After a step of a plan, counts[i] ranks had set flag i.
class Operation : public Received {
 public:
  explicit Operation(std::string name) : name(std::move(name)) {}
  bool done() const { return done_.load(std::memory_order_acquire); }
  bool wait(double seconds);  // true once done; negative: no limit; never throws the operation's error
  void finish(std::exception_ptr error = nullptr);     // later calls have no effect
  void renew();                                        // resets to the initial state; no other owner may hold it
  std::exception_ptr error() const { return error_; }  // after done()

  const std::string name;
  std::atomic<int> waiters{0};  // threads in wait_for() without a time limit

 private:
  std::atomic<bool> done_{false};
  std::exception_ptr error_;

 public:
  int last_joined = -1;  // after a join: the last rank to join, as numbered by the engine's transport
  // Entry to which the caller's waiting time is added; null unless timing is enabled. Read after
  // done().
  std::shared_ptr<Entry> entry;
};

}  // namespace ringcomm
