// Shards of either element type, for those who have bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "store/shard.hpp"

namespace ringcomm::store {

struct Range {
  std::uint64_t first = 0, count = 0;  // elements
};

class AnyShard {
  using Either = std::variant<Shard<float>, Shard<double>>;
  template <class T>
  struct As {  // bytes as elements
    T* operator()(std::byte* bytes) const { return reinterpret_cast<T*>(bytes); }
    const T* operator()(const std::byte* bytes) const { return reinterpret_cast<const T*>(bytes); }
  };
  template <class T>
  static As<T> as_of(Shard<T>&) {
    return {};
  }
  template <class Act>
  decltype(auto) with(Act&& act) {
    return std::visit([&](auto& one) { return act(one, as_of(one)); }, it_);
  }

 public:
  AnyShard(std::byte* memory, int owner, std::size_t count, bool wide, std::size_t states, std::size_t sums,
           std::shared_ptr<Node> node, int rank)
      : node_(std::move(node)), it_(made(memory, owner, count, wide, states, sums, rank)) {}
  static std::size_t bytes(std::size_t count, bool wide, std::size_t states, std::size_t sums) {
    return wide ? Shard<double>::bytes(count, states, sums) : Shard<float>::bytes(count, states, sums);
  }
  std::size_t element() const { return std::holds_alternative<Shard<double>>(it_) ? sizeof(double) : sizeof(float); }
  std::size_t count() {
    return with([](auto& one, auto) { return one.count(); });
  }
  void make(const std::byte* weights) {
    with([&](auto& one, auto as) { one.make(as(weights)); });
  }
  std::uint64_t version() {
    return with([](auto& one, auto) { return one.version(); });
  }
  std::uint64_t broken() {
    return with([](auto& one, auto) { return one.broken(); });
  }
  std::uint64_t group() {
    return with([](auto& one, auto) { return one.group(); });
  }
  bool gathers_now() {
    return with([](auto& one, auto) { return one.gathers_now(); });
  }
  // As Shard::apply, to several ranges: their elements lie one behind the other in the arrays that are given (or null).
  std::uint64_t apply(Rule rule, const RuleOptions& options, std::span<const Range> ranges, const std::byte* gradient,
                      const std::byte* pulled, std::byte* result) {
    return with([&](auto& one, auto as) {
      std::uint64_t before = one.version(), at = 0;
      for (const Range& range : ranges) {
        const auto from = [&](auto* array) { return array ? as(array) + at : nullptr; };
        const std::uint64_t seen =
            one.apply(rule, options, range.first, range.count, from(gradient), from(pulled), from(result));
        if (&range == ranges.data()) before = seen;
        at += range.count;
      }
      return before;
    });
  }
  Arrival gather(const Gathering& how, std::uint64_t clock, Rule rule, const RuleOptions& options,
                 const std::byte* gradient, const Clocks& clocks) {
    return with([&](auto& one, auto as) { return one.gather(how, clock, rule, options, as(gradient), clocks); });
  }
  Arrival enter(const Gathering& how, std::uint64_t clock) {
    return with([&](auto& one, auto) { return one.enter(how, clock); });
  }
  std::size_t sums() {
    return with([](auto& one, auto) { return one.sums(); });
  }
  void add(std::size_t sum, double scale, const Range& range, const std::byte* gradient) {
    with([&](auto& one, auto as) { one.add(sum, scale, range.first, range.count, as(gradient)); });
  }
  Arrival leave(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks) {
    return with([&](auto& one, auto) { return one.leave(how, rule, options, clocks); });
  }
  bool settle(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks) {
    return with([&](auto& one, auto) { return one.settle(how, rule, options, clocks); });
  }
  std::uint32_t claim(const Gathering& how, const Clocks& clocks, std::byte* sum) {
    return with([&](auto& one, auto as) { return one.claim(how, clocks, as(sum)); });
  }
  void release() {
    with([](auto& one, auto) { one.release(); });
  }
  std::pair<std::uint64_t, std::uint64_t> average_with(AnyShard& other) {
    return with([&](auto& one, auto) { return one.average_with(std::get<std::decay_t<decltype(one)>>(other.it_)); });
  }

 private:
  Either made(std::byte* memory, int owner, std::size_t count, bool wide, std::size_t states, std::size_t sums,
              int rank) {
    if (wide) return Shard<double>(memory, owner, count, states, sums, node_.get(), rank);
    return Shard<float>(memory, owner, count, states, sums, node_.get(), rank);
  }

  const std::shared_ptr<Node> node_;
  Either it_;
};

}  // namespace ringcomm::store
