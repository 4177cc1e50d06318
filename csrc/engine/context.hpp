// What the engine's parts share.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/trace.hpp"
#include "engine/control.hpp"
#include "engine/engine.hpp"
#include "engine/tags.hpp"

namespace ringcomm {

class PlanRun;

// A named operation from submit() until it has finished; what its caller holds of it is the base. After submit() only
// the worker touches the rest, and never the request and the signature. What each of many operations is asked for comes
// first: these are as many places in memory as a model has parameters, and no cache keeps them from step to step.
struct Pending final : Operation {
  explicit Pending(std::string name)
      : Operation(std::move(name)), name_hash(std::hash<std::string_view>()(this->name)) {}

  const std::size_t name_hash;
  bool join = false;      // not a request: this rank has nothing more to give, until all have joined
  bool stand_in = false;  // for what this rank, having joined, takes part in without having submitted it
  bool agreed = false;
  std::shared_ptr<PlanRun> plan;  // a plan's step, not a request
  std::int64_t submitted_ns = 0, sent_ns = 0;
  std::int64_t withdrawn_ns = 0;  // when this rank asked to give it up; 0: it has not
  // the set in which it was sent last; after so many were forgotten there; as this id
  int sent_in = -1;
  std::uint32_t sent_as = 0;
  std::uint64_t sent_at = 0;
  std::uint32_t group_size = 1;
  std::uint64_t group = 0;
  Named request;
  Descriptor signature;

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
using PendingPtr = std::shared_ptr<Pending>;

// By name; who has the operation itself finds it without a look at the name.
struct SameName {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  std::size_t operator()(const PendingPtr& pending) const { return pending->name_hash; }
  bool operator()(const PendingPtr& a, const PendingPtr& b) const {
    return a == b || (a->name_hash == b->name_hash && a->name == b->name);
  }
  bool operator()(const PendingPtr& a, std::string_view name) const { return a->name == name; }
  bool operator()(std::string_view name, const PendingPtr& a) const { return a->name == name; }
};
using PendingByName = std::unordered_set<PendingPtr, SameName, SameName>;

struct Context {
  Context(std::shared_ptr<Transport> t, EngineConfig c)
      : config(std::move(c)), transport(std::move(t)), tags(transport->tag_limit()), control(*transport) {}
  const EngineConfig config;
  const std::shared_ptr<Transport> transport;
  const TagMap tags;
  std::mutex mutex;  // guards what user threads and the worker share; held briefly, never while anything is called back
  std::size_t open = 0;  // operations in flight in all sets; guarded
  Control control;       // the worker's

  int rank() const { return transport->rank(); }
  void traced(const char* category, const std::string& name, std::int64_t begin, std::int64_t end,
              std::uint64_t bytes = 0, std::string_view detail = {}) const {
    if (trace().enabled()) trace().record(category, name, detail, begin, end, bytes, rank(), 1);
  }
};

// FNV-1a over what must agree.
class Hash {
 public:
  Hash& add(const void* data, std::size_t nbytes) {
    for (std::size_t i = 0; i < nbytes; ++i)
      value_ = (value_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ULL;
    return *this;
  }
  Hash& add(std::uint64_t value) { return add(&value, sizeof value); }
  Hash& add(const std::string& text) { return add(text.size()).add(text.data(), text.size()); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

Descriptor signature_of(const Named& request);
PendingPtr stand_in_for(const std::string& name, const Descriptor& signature);
std::vector<std::uint64_t> extra_of(const Named& request);

}  // namespace ringcomm
