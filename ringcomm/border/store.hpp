// The store's classes, with addresses as Python has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "store/any_shard.hpp"
#include "store/service.hpp"

namespace ringcomm_border {

inline std::byte* at(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

inline std::shared_ptr<ringcomm::store::Clocks> clocks(std::uintptr_t memory, int workers, ringcomm::Node* node,
                                                       std::vector<int> of_host) {
  return std::make_shared<ringcomm::store::Clocks>(at(memory), workers, node, std::move(of_host));
}

inline std::vector<ringcomm::store::Range> ranges_at(std::uintptr_t pairs, std::size_t many) {
  const auto* const first = reinterpret_cast<const ringcomm::store::Range*>(pairs);
  return {first, first + many};
}

inline std::shared_ptr<ringcomm::store::Service> service_on(ringcomm::Engine& engine) {
  auto made = std::make_shared<ringcomm::store::Service>();
  engine.add_service(made);
  return made;
}

inline std::size_t states_of(ringcomm::store::Rule rule, const ringcomm::store::RuleOptions& options) {
  return ringcomm::kernels::states_of(rule, options);
}

// Of float32 weights, by rules without state, and without locks: for those who measure it.
inline void update(ringcomm::store::Rule rule, const ringcomm::store::RuleOptions& options, std::uintptr_t weights,
                   std::uintptr_t gradient, std::uintptr_t result, std::size_t count) {
  const auto floats = [](std::uintptr_t address) { return reinterpret_cast<float*>(address); };
  ringcomm::kernels::update(ringcomm::kernels::UpdateJob<float>{rule, &options, 1, floats(weights), nullptr, nullptr,
                                                                floats(gradient), nullptr, floats(result), count});
}

}  // namespace ringcomm_border
