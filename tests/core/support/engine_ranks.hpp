// Ranks as threads with an engine each, for the engine's tests.
#pragma once

#include <algorithm>
#include <barrier>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "engine/engine.hpp"
#include "random.hpp"
#include "transport/threads.hpp"

namespace ringcomm {

using Op_ = std::shared_ptr<Operation>;

struct Rank {
  int rank, size;
  std::shared_ptr<Worker> worker;
  std::weak_ptr<Transport> transport;  // shows whether another object keeps it alive
  std::unique_ptr<Engine> engine;

  Rank(const std::shared_ptr<ThreadsHub>& hub, int r, int s, EngineConfig config = {}, bool threaded = true,
       std::shared_ptr<Node> node = nullptr)
      : rank(r), size(s), worker(std::make_shared<Worker>(threaded)),
        engine(make_engine(make_threads_transport(hub, r), std::move(config))) {
    std::vector<int> everybody(static_cast<std::size_t>(s));
    std::iota(everybody.begin(), everybody.end(), 0);
    CHECK(engine->add_set(everybody, std::move(node), 0) == 0);
  }
  std::unique_ptr<Engine> make_engine(std::shared_ptr<Transport> made, EngineConfig config) {
    transport = made;
    return std::make_unique<Engine>(worker, std::move(made), std::move(config));
  }
  void wait(const Op_& op) { CHECK(wait_for(*op, *worker, 60, nullptr)); }
  // Returns the operation's error, if any.
  std::optional<Error> outcome(const Op_& op) {
    wait(op);
    if (!op->error()) return std::nullopt;
    try {
      std::rethrow_exception(op->error());
    } catch (const Error& error) {
      return error;
    }
  }
};

inline NamedRequest named(const std::string& name, std::vector<std::int32_t>& data) {
  NamedRequest request;
  request.call.dtype = DType::int32;
  request.call.name = name;
  request.call.input = request.call.output = data.data();
  request.call.count = data.size();
  return request;
}

template <class F>
ErrorKind thrown(F&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::internal;
}

inline bool is_left(const std::optional<Error>& error, int rank, const std::string& name) {
  return error && error->kind() == ErrorKind::left && error->ranks() == std::vector<int>{rank} &&
         std::string(error->what()).find("'" + name + "'") != std::string::npos;
}

inline void check_data(const std::vector<std::int32_t>& data, std::int32_t expected) {
  for (const std::int32_t value : data) CHECK(value == expected);
}

}  // namespace ringcomm
