// The parameter store for _store.pxi, with addresses as integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/engine.hpp"
#include "param_server/service.hpp"

namespace ringcomm_border {

inline std::shared_ptr<ringcomm::store::Service> service_on(ringcomm::Engine& engine) {
  auto made = std::make_shared<ringcomm::store::Service>();
  engine.add_service(made);
  return made;
}

// Applies a rule without state to float32 weights, without locks, for benchmarks.
inline void update(ringcomm::store::Rule rule, const ringcomm::store::RuleOptions& options, std::uintptr_t weights,
                   std::uintptr_t gradient, std::uintptr_t result, std::size_t count) {
  const auto floats = [](std::uintptr_t address) { return reinterpret_cast<float*>(address); };
  ringcomm::kernels::update(ringcomm::kernels::UpdateJob<float>{rule, &options, 1, floats(weights), nullptr, nullptr,
                                                                floats(gradient), nullptr, floats(result), count});
}

}  // namespace ringcomm_border
