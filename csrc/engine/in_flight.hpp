// The operations of a process set that this rank has submitted and that have not finished. User
// threads add to it; the worker finishes them.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <vector>

#include "engine/context.hpp"
#include "engine/operation_state.hpp"
#include "engine/plans/bucket.hpp"

namespace ringcomm {

class InFlight {
 public:
  explicit InFlight(Context& context) : context_(context) {}

  // ---- any thread, with the context's mutex held
  void insert(OperationStatePtr pending);            // throws Error(invalid) if its name is in flight
  void require_free(const std::string& name) const;  // throws likewise
  bool joining() const { return joining_; }          // this rank has joined, and another rank has not
  bool empty() const { return by_name_.empty(); }
  void list(std::vector<std::string>& names) const;

  // ---- the worker
  std::vector<OperationStatePtr> take_fresh();  // submitted since the last call
  void put_back(OperationStatePtr pending);     // one of them, to be returned by the next take_fresh()
  OperationStatePtr find(const std::string& name) const;
  std::vector<OperationStatePtr> all() const;
  // Finish operations, ignoring those that are no longer in flight.
  void finish(const OperationStatePtr& pending, const std::exception_ptr& error);
  void finish(const std::vector<Agreed>& parts, const std::exception_ptr& error);  // many, with one lock
  void fail(const OperationStatePtr& pending, const Error& error);  // prefixes the text with the operation's name

 private:
  bool withdraw(const OperationStatePtr& pending);
  void announce(OperationState& pending, std::exception_ptr error);

  Context& context_;
  // Guarded by the context's mutex.
  PendingByName by_name_;
  std::vector<OperationStatePtr> fresh_;
  // False only if `fresh_` is empty. A turn reads it without the mutex, because most sets are idle.
  std::atomic<bool> has_fresh_{false};
  bool joining_ = false;
};

}  // namespace ringcomm
