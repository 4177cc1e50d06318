// Shards of either element type, and addresses as Python has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

#include "store/shard.hpp"

namespace ringcomm_border {

class AnyShard {
 public:
  AnyShard(std::uintptr_t memory, int owner, std::size_t count, bool wide, std::size_t states, std::size_t sums,
           std::shared_ptr<ringcomm::Node> node, int rank)
      : node_(std::move(node)), it_(made(memory, owner, count, wide, states, sums, rank)) {}
  static std::size_t bytes(std::size_t count, bool wide, std::size_t states, std::size_t sums) {
    return wide ? ringcomm::store::Shard<double>::bytes(count, states, sums)
                : ringcomm::store::Shard<float>::bytes(count, states, sums);
  }
  void make(std::uintptr_t weights) {
    std::visit([&](auto& one) { one.make(at(one, weights)); }, it_);
  }
  std::uint64_t version() {
    return std::visit([](auto& one) { return one.version(); }, it_);
  }
  std::uint64_t broken() {
    return std::visit([](auto& one) { return one.broken(); }, it_);
  }
  std::uint64_t group() {
    return std::visit([](auto& one) { return one.group(); }, it_);
  }
  std::uint64_t apply(int rule, const ringcomm::store::RuleOptions& options, std::size_t first, std::size_t count,
                      std::uintptr_t gradient, std::uintptr_t pulled, std::uintptr_t result) {
    const auto with = [&](auto& one) {
      return one.apply(rule_of(rule), options, first, count, at(one, gradient), at(one, pulled), at(one, result));
    };
    return std::visit(with, it_);
  }
  int gather(const ringcomm::store::Gathering& how, std::uint64_t clock, int rule,
             const ringcomm::store::RuleOptions& options, std::uintptr_t gradient,
             const ringcomm::store::Clocks& clocks) {
    const auto with = [&](auto& one) {
      return one.gather(how, clock, rule_of(rule), options, at(one, gradient), clocks);
    };
    return static_cast<int>(std::visit(with, it_));
  }
  bool settle(const ringcomm::store::Gathering& how, int rule, const ringcomm::store::RuleOptions& options,
              const ringcomm::store::Clocks& clocks) {
    return std::visit([&](auto& one) { return one.settle(how, rule_of(rule), options, clocks); }, it_);
  }
  std::pair<std::uint64_t, std::uint64_t> average_with(AnyShard& other) {
    const auto with = [&](auto& one) { return one.average_with(std::get<std::decay_t<decltype(one)>>(other.it_)); };
    return std::visit(with, it_);
  }

 private:
  using Either = std::variant<ringcomm::store::Shard<float>, ringcomm::store::Shard<double>>;
  Either made(std::uintptr_t memory, int owner, std::size_t count, bool wide, std::size_t states, std::size_t sums,
              int rank) {
    std::byte* const at = reinterpret_cast<std::byte*>(memory);
    if (wide) return ringcomm::store::Shard<double>(at, owner, count, states, sums, node_.get(), rank);
    return ringcomm::store::Shard<float>(at, owner, count, states, sums, node_.get(), rank);
  }
  template <class T>
  static T* at(ringcomm::store::Shard<T>&, std::uintptr_t address) {
    return reinterpret_cast<T*>(address);
  }
  static ringcomm::store::Rule rule_of(int rule) { return static_cast<ringcomm::store::Rule>(rule); }

  const std::shared_ptr<ringcomm::Node> node_;
  Either it_;
};

inline std::unique_ptr<ringcomm::store::Clocks> clocks(std::uintptr_t memory, int workers, ringcomm::Node* node) {
  return std::make_unique<ringcomm::store::Clocks>(reinterpret_cast<std::byte*>(memory), workers, node);
}

inline std::size_t states_of(int rule, const ringcomm::store::RuleOptions& options) {
  return ringcomm::kernels::states_of(static_cast<ringcomm::kernels::Rule>(rule), options);
}

// Of float32 weights, by rules without state, and without locks: for those who measure it.
inline void update(int rule, const ringcomm::store::RuleOptions& options, std::uintptr_t weights,
                   std::uintptr_t gradient, std::uintptr_t result, std::size_t count) {
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<float*>(address); };
  ringcomm::kernels::update(ringcomm::kernels::UpdateJob<float>{static_cast<ringcomm::store::Rule>(rule), &options, 1,
                                                                at(weights), nullptr, nullptr, at(gradient), nullptr,
                                                                at(result), count});
}

}  // namespace ringcomm_border
