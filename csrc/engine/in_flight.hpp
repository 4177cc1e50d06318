// The operations of a process set that have been submitted here and have not finished.
#pragma once

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
  void require_free(const std::string& name) const;  // so does this
  bool joining() const { return joining_; }          // this rank has joined, and not all have
  bool empty() const { return by_name_.empty(); }
  void list(std::vector<std::string>& names) const;

  // ---- the worker
  std::vector<OperationStatePtr> take_fresh();  // submitted since the last call
  void put_back(OperationStatePtr pending);     // one of them, for the next call
  OperationStatePtr find(const std::string& name) const;
  std::vector<OperationStatePtr> all() const;
  // Of those that still are in flight.
  void finish(const OperationStatePtr& pending, const std::exception_ptr& error);
  void finish(const std::vector<Agreed>& parts, const std::exception_ptr& error);  // the same of many, with one lock
  void fail(const OperationStatePtr& pending, const Error& error);  // the text gets the operation's name in front

 private:
  bool withdraw(const OperationStatePtr& pending);
  void announce(OperationState& pending, std::exception_ptr error);

  Context& context_;
  // Guarded by the context's mutex.
  PendingByName by_name_;
  std::vector<OperationStatePtr> fresh_;
  bool joining_ = false;
};

}  // namespace ringcomm
