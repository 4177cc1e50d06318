#include "store/shard.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cuts.hpp"

namespace ringcomm::store {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHeader = round_up(sizeof(ShardHeader), kLine);

std::size_t array_bytes(std::size_t count, std::size_t size) { return round_up(count * size, kLine); }

template <class T>
T* part(std::byte* memory, std::size_t locks, std::size_t count, std::size_t number) {
  return reinterpret_cast<T*>(memory + kHeader + locks * sizeof(Lock) + number * array_bytes(count, sizeof(T)));
}

}  // namespace

template <class T>
std::size_t Shard<T>::bytes(std::size_t count, std::size_t states, std::size_t sums) {
  const std::size_t stripes = (count + kStripe - 1) / kStripe;
  return kHeader + stripes * sizeof(Lock) + (1 + states + sums) * array_bytes(count, sizeof(T));
}

template <class T>
Shard<T>::Shard(std::byte* memory, int owner, std::size_t count, std::size_t states, std::size_t sums, Node* node,
                int rank)
    : header_(*reinterpret_cast<ShardHeader*>(memory)), owner_(owner), count_(count),
      stripes_((count + kStripe - 1) / kStripe), sums_(sums), locks_(reinterpret_cast<Lock*>(memory + kHeader)),
      weights_(part<T>(memory, stripes_, count, 0)), first_(states > 0 ? part<T>(memory, stripes_, count, 1) : nullptr),
      second_(states > 1 ? part<T>(memory, stripes_, count, 2) : nullptr),
      sum_(sums > 0 ? part<T>(memory, stripes_, count, 1 + states) : nullptr), node_(node), rank_(rank) {}

template <class T>
void Shard<T>::make(const T* weights) {
  const std::size_t states = (first_ != nullptr) + (second_ != nullptr);
  std::memset(static_cast<void*>(&header_), 0, bytes(count_, states, sums_));
  std::copy_n(weights, count_, weights_);
}

template <class T>
void Shard<T>::take(Lock& lock) {
  if (lock.take(node_, rank_)) header_.broken.fetch_add(1, std::memory_order_relaxed);
}

// Begins at a place of its own among the stripes, and comes back to those that are taken: ranks rarely meet.
template <class T>
template <class Act>
void Shard<T>::each_stripe(std::size_t first, std::size_t count, Act&& act) {
  if (count == 0) return;
  const std::size_t from = first / kStripe, to = (first + count - 1) / kStripe + 1, many = to - from;
  const std::size_t ranks = node_ ? static_cast<std::size_t>(node_->size()) : 1;
  const std::size_t mine = many * (static_cast<std::size_t>(rank_) % ranks) / ranks;
  const auto locked = [&](std::size_t stripe) {
    const std::size_t begin = std::max(first, stripe * kStripe);
    const std::size_t end = std::min(first + count, (stripe + 1) * kStripe);
    act(locks_[stripe], begin, end - begin);
    locks_[stripe].give_back();
  };
  std::vector<std::size_t> later;
  for (std::size_t i = 0; i < many; ++i) {
    const std::size_t stripe = from + (mine + i) % many;
    if (locks_[stripe].try_take(rank_)) {
      locked(stripe);
    } else {
      later.push_back(stripe);
    }
  }
  for (const std::size_t stripe : later) {
    take(locks_[stripe]);
    locked(stripe);
  }
}

template <class T>
std::uint64_t Shard<T>::apply(Rule rule, const RuleOptions& options, std::size_t first, std::size_t count,
                              const T* gradient, const T* pulled, T* result) {
  const bool changes = rule != Rule::get;
  std::uint64_t before = version();
  each_stripe(first, count, [&](Lock& lock, std::size_t begin, std::size_t length) {
    const std::size_t there = begin - first;
    if (begin == 0) before = lock.updates;
    count_update(lock, changes);
    kernels::update(kernels::UpdateJob<T>{rule, &options, lock.updates, weights_ + begin,
                                          first_ ? first_ + begin : nullptr, second_ ? second_ + begin : nullptr,
                                          gradient ? gradient + there : nullptr, pulled ? pulled + there : nullptr,
                                          result ? result + there : nullptr, length});
  });
  return before;
}

template <class T>
void Shard<T>::count_update(Lock& lock, bool changes) {
  lock.updates += changes;
  if (&lock == locks_) header_.version.store(lock.updates, std::memory_order_release);
}

template <class T>
std::uint64_t Shard<T>::group() {
  take(header_.gather);
  const std::uint64_t group = header_.group;
  header_.gather.give_back();
  return group;
}

template <class T>
Arrival Shard<T>::gather(const Gathering& how, std::uint64_t clock, Rule rule, const RuleOptions& options,
                         const T* gradient, const Clocks& clocks) {
  const Arrival arrival = enter(how, clock);
  if (arrival != Arrival::gathered) return arrival;
  add(how.sum, options.scale, 0, count_, gradient);
  return leave(how, rule, options, clocks);
}

template <class T>
Arrival Shard<T>::enter(const Gathering& how, std::uint64_t clock) {
  take(header_.gather);
  const bool many = header_.arrived >= static_cast<std::uint32_t>(how.many);
  const bool late = how.of_step && (clock < header_.group || (many && clock == header_.group));
  const bool full = many || (how.of_step && clock > header_.group);
  if (!late && !full) ++header_.arrived;
  header_.gather.give_back();
  return late ? Arrival::dropped : full ? Arrival::full : Arrival::gathered;
}

template <class T>
void Shard<T>::add(std::size_t number, double scale, std::size_t first, std::size_t count, const T* gradient) {
  RuleOptions scaled;
  scaled.scale = scale;
  each_stripe(first, count, [&](Lock&, std::size_t begin, std::size_t length) {
    kernels::update(kernels::UpdateJob<T>{Rule::add, &scaled, 1, sum(number) + begin, nullptr, nullptr,
                                          gradient + (begin - first), nullptr, nullptr, length});
  });
}

template <class T>
Arrival Shard<T>::leave(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks) {
  take(header_.gather);
  ++header_.done;
  header_.gather.give_back();
  return settle(how, rule, options, clocks) ? Arrival::applied : Arrival::gathered;
}

template <class T>
bool Shard<T>::gathers_now() {
  take(header_.gather);
  const bool something = header_.arrived > 0;
  header_.gather.give_back();
  return something;
}

// How many are to be applied, and are the caller's then; 0: others may still come.
template <class T>
std::uint32_t Shard<T>::complete(const Gathering& how, const Clocks& clocks) {
  take(header_.gather);
  const std::uint32_t done = header_.done;
  const int expected = std::min(how.many, clocks.live());
  const bool complete = done > 0 && header_.arrived == done && static_cast<int>(done) >= expected;
  if (complete) header_.arrived = static_cast<std::uint32_t>(how.many) + 1, header_.done = 0;  // full, until applied
  header_.gather.give_back();
  return complete ? done : 0;
}

template <class T>
bool Shard<T>::settle(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks) {
  const std::uint32_t number = rule == Rule::get ? 0 : complete(how, clocks);
  if (number == 0) return false;
  apply_gathered(rule, options, number);
  release();
  return true;
}

template <class T>
std::uint32_t Shard<T>::claim(const Gathering& how, const Clocks& clocks, T* sum) {
  const std::uint32_t number = complete(how, clocks);
  if (number > 0) {
    fold(0, count_);  // nobody adds before release()
    std::copy_n(sum_, count_, sum);
    std::fill_n(sum_, count_, T{});
  }
  return number;
}

template <class T>
void Shard<T>::release() {
  take(header_.gather);
  ++header_.group;
  header_.arrived = 0;
  header_.gather.give_back();
}

template <class T>
T* Shard<T>::sum(std::size_t number) const {
  return sum_ + number * (array_bytes(count_, sizeof(T)) / sizeof(T));
}

// All sums into the first, in their order.
template <class T>
void Shard<T>::fold(std::size_t begin, std::size_t length) {
  RuleOptions plain;
  plain.scale = 1.0;
  for (std::size_t i = 1; i < sums_; ++i) {
    kernels::update(kernels::UpdateJob<T>{Rule::add, &plain, 1, sum_ + begin, nullptr, nullptr, sum(i) + begin, nullptr,
                                          nullptr, length});
    std::fill_n(sum(i) + begin, length, T{});
  }
}

template <class T>
void Shard<T>::apply_gathered(Rule rule, RuleOptions options, std::uint32_t number) {
  options.scale = 1.0 / number;
  options.compensate = 0;
  each_stripe(0, count_, [&](Lock& lock, std::size_t begin, std::size_t length) {
    fold(begin, length);
    count_update(lock, true);
    kernels::update(kernels::UpdateJob<T>{rule, &options, lock.updates, weights_ + begin,
                                          first_ ? first_ + begin : nullptr, second_ ? second_ + begin : nullptr,
                                          sum_ + begin, nullptr, nullptr, length});
    std::memset(sum_ + begin, 0, length * sizeof(T));
  });
}

template <class T>
std::pair<std::uint64_t, std::uint64_t> Shard<T>::average_with(Shard& other) {
  std::pair<std::uint64_t, std::uint64_t> before{version(), other.version()};
  if (owner_ == other.owner_) return before;
  const RuleOptions none;
  const bool mine_first = owner_ < other.owner_;  // everybody takes the lower owner's lock first
  for (std::size_t i = 0; i < stripes_; ++i) {
    const std::size_t stripe = (i + stripes_ * static_cast<std::size_t>(rank_) / 8) % stripes_;
    Lock& a = (mine_first ? *this : other).locks_[stripe];
    Lock& b = (mine_first ? other : *this).locks_[stripe];
    take(a);
    take(b);
    if (stripe == 0) before = {locks_[0].updates, other.locks_[0].updates};
    const std::size_t begin = stripe * kStripe, length = std::min(kStripe, count_ - begin);
    kernels::update(kernels::UpdateJob<T>{Rule::average, &none, 1, weights_ + begin, nullptr, nullptr, nullptr, nullptr,
                                          other.weights_ + begin, length});
    count_update(locks_[stripe], true);
    other.count_update(other.locks_[stripe], true);
    b.give_back();
    a.give_back();
  }
  return before;
}

template class Shard<float>;
template class Shard<double>;

}  // namespace ringcomm::store
