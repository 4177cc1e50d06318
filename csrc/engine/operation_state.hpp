// A submitted operation with its request and its state in the protocol, as the engine stores it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/operation.hpp"
#include "engine/request.hpp"
#include "shm/descriptor.hpp"

namespace ringcomm {

class PlanRun;

// A named operation from submit() until it has finished; its caller holds it as the base class.
// After submit() only the worker uses its fields. It does not change the request and the signature.
// Hot fields first: a step costs one cache miss per parameter of the model, because no cache keeps
// them between steps.
struct OperationState final : Operation {
  explicit OperationState(std::string name)
      : Operation(std::move(name)), name_hash(std::hash<std::string_view>()(this->name)) {}

  enum class Kind : std::uint8_t {
    request,  // runs `request`
    step,     // runs a step of `plan`
    join,     // this rank submits nothing more, until all have joined
  };
  const std::size_t name_hash;
  Kind kind = Kind::request;
  bool is_placeholder = false;  // placeholder for an operation that this rank, having joined, did not submit
  bool agreed = false;
  std::shared_ptr<PlanRun> plan;  // until the step has finished
  // Finished before the step: one for each bucket of its plan, then one for the flags, with counts.
  // Empty unless the plan runs by priority.
  std::vector<std::shared_ptr<Operation>> parts;
  std::int64_t submitted_ns = 0, sent_ns = 0;
  std::int64_t withdrawn_ns = 0;  // time at which this rank asked to withdraw it; 0: it has not
  // Set in which it was sent last; its id there; and how many names that set had forgotten by then.
  int sent_in = -1;
  std::uint32_t sent_as = 0;
  std::uint64_t sent_at = 0;
  std::uint32_t group_size = 1;
  std::uint64_t group = 0;
  NamedRequest request;
  Descriptor signature;

  bool runs() const { return kind != Kind::join; }
  // breaks the cycle: a plan holds its step, which holds the plan only while it runs
  void conclude(std::exception_ptr error) {
    plan.reset();
    for (const auto& part : std::exchange(parts, {})) part->finish(error);
    finish(std::move(error));
  }
  void renew() {  // prepares for another submission; no other owner may hold it
    Operation::renew();
    sent_ns = withdrawn_ns = 0;
    agreed = false;
  }
};
using OperationStatePtr = std::shared_ptr<OperationState>;

// Compares by name; a lookup with the operation itself compares addresses first.
struct SameName {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  std::size_t operator()(const OperationStatePtr& pending) const { return pending->name_hash; }
  bool operator()(const OperationStatePtr& a, const OperationStatePtr& b) const {
    return a == b || (a->name_hash == b->name_hash && a->name == b->name);
  }
  bool operator()(const OperationStatePtr& a, std::string_view name) const { return a->name == name; }
  bool operator()(std::string_view name, const OperationStatePtr& a) const { return a->name == name; }
};
using PendingByName = std::unordered_set<OperationStatePtr, SameName, SameName>;

}  // namespace ringcomm
