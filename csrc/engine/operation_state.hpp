// An operation on its way, as the engine keeps it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "engine/operation.hpp"
#include "engine/request.hpp"
#include "shm/descriptor.hpp"

namespace ringcomm {

class PlanRun;

// A named operation from submit() until it has finished; what its caller holds of it is the base. After submit() only
// the worker touches the rest, and never the request and the signature. What each of many operations is asked for comes
// first: these are as many places in memory as a model has parameters, and no cache keeps them from step to step.
struct OperationState final : Operation {
  explicit OperationState(std::string name)
      : Operation(std::move(name)), name_hash(std::hash<std::string_view>()(this->name)) {}

  enum class Kind : std::uint8_t {
    request,  // runs `request`
    step,     // runs a step of `plan`
    join,     // this rank has nothing more to give, until all have joined
  };
  const std::size_t name_hash;
  Kind kind = Kind::request;
  bool stand_in = false;  // for what this rank, having joined, takes part in without having submitted it
  bool agreed = false;
  std::shared_ptr<PlanRun> plan;  // until the step has finished
  std::int64_t submitted_ns = 0, sent_ns = 0;
  std::int64_t withdrawn_ns = 0;  // when this rank asked to give it up; 0: it has not
  // the set in which it was sent last; after so many were forgotten there; as this id
  int sent_in = -1;
  std::uint32_t sent_as = 0;
  std::uint64_t sent_at = 0;
  std::uint32_t group_size = 1;
  std::uint64_t group = 0;
  NamedRequest request;
  Descriptor signature;

  bool runs() const { return kind != Kind::join; }
  void conclude(std::exception_ptr error) {  // a plan holds its step, which holds it no longer than it takes
    plan.reset();
    finish(std::move(error));
  }
  void renew() {  // for another submission; nobody else holds this
    Operation::renew();
    sent_ns = withdrawn_ns = 0;
    agreed = false;
  }
};
using OperationStatePtr = std::shared_ptr<OperationState>;

// By name; who has the operation itself finds it without a look at the name.
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
