// Implements Shard: rules by stripe, and gathering of gradients.
#include "param_server/shard.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cuts.hpp"

namespace ringcomm::store {
namespace {

constexpr std::size_t kHeader = round_up(sizeof(ShardHeader), kLine);

std::size_t stripes_in(std::size_t count, std::size_t element) {
  return (count * element + Shard::kStripe - 1) / Shard::kStripe;
}
std::size_t array_bytes(std::size_t count, std::size_t element) { return round_up(count * element, kLine); }

auto* past(auto* array, std::size_t nbytes) { return array ? at(array, nbytes) : nullptr; }

}  // namespace

std::size_t Shard::bytes(std::size_t count, bool wide, std::size_t states, std::size_t sums) {
  const std::size_t element = wide ? sizeof(double) : sizeof(float);
  return kHeader + stripes_in(count, element) * sizeof(Lock) + (1 + states + sums) * array_bytes(count, element);
}

Shard::Shard(void* memory, int owner, std::size_t count, bool wide, std::size_t states, std::size_t sums,
             std::shared_ptr<Node> node, int rank)
    : header_(*static_cast<ShardHeader*>(memory)), owner_(owner), element_(wide ? sizeof(double) : sizeof(float)),
      count_(count), stripe_(kStripe / element_), stripes_(stripes_in(count, element_)), states_(states), sums_(sums),
      locks_(reinterpret_cast<Lock*>(at(memory, kHeader))), node_(std::move(node)), rank_(rank) {}

void Shard::make(const void* weights) {
  std::memset(static_cast<void*>(&header_), 0, bytes(count_, element_ == sizeof(double), states_, sums_));
  std::copy_n(static_cast<const std::byte*>(weights), count_ * element_, array(0));
}

std::byte* Shard::array(std::size_t number, std::size_t element) const {
  return at(locks_ + stripes_, number * array_bytes(count_, element_) + element * element_);
}

Shard::Held Shard::hold(Lock& lock) {
  if (lock.take(node_.get(), rank_)) header_.broken.fetch_add(1, std::memory_order_relaxed);
  return Held(&lock);
}

// Calls `act` on each stripe of the range under its lock. Each rank begins at a different stripe,
// and defers stripes that are locked, so ranks rarely contend.
template <class Act>
void Shard::each_stripe(const Range& range, Act&& act) {
  if (range.count == 0) return;
  const std::size_t first = range.first, end = first + range.count;
  const std::size_t from = first / stripe_, many = (end - 1) / stripe_ + 1 - from;
  const std::size_t ranks = node_ ? static_cast<std::size_t>(node_->size()) : 1;
  const std::size_t mine = many * (static_cast<std::size_t>(rank_) % ranks) / ranks;
  const auto act_on = [&](std::size_t stripe, const Held& held) {
    const std::size_t begin = std::max(first, stripe * stripe_);
    act(*held, Range{begin, std::min(end, (stripe + 1) * stripe_) - begin});
  };
  std::vector<std::size_t> later;
  for (std::size_t i = 0; i < many; ++i) {
    const std::size_t stripe = from + (mine + i) % many;
    if (locks_[stripe].try_take(rank_)) {
      act_on(stripe, Held(&locks_[stripe]));
    } else {
      later.push_back(stripe);
    }
  }
  for (const std::size_t stripe : later) act_on(stripe, hold(locks_[stripe]));
}

// Applies a rule to a range. The arrays begin at the range's first element.
void Shard::update(Rule rule, const RuleOptions& options, std::uint64_t step, std::size_t target, const Range& range,
                   const void* gradient, const void* pulled, void* result) {
  const auto run = [&]<class T>(T) {
    const auto here = [&](std::size_t number) { return reinterpret_cast<T*>(array(number, range.first)); };
    kernels::update(kernels::UpdateJob<T>{rule, &options, step, here(target), states_ > 0 ? here(1) : nullptr,
                                          states_ > 1 ? here(2) : nullptr, static_cast<const T*>(gradient),
                                          static_cast<const T*>(pulled), static_cast<T*>(result), range.count});
  };
  element_ == sizeof(double) ? run(double{}) : run(float{});
}

std::uint64_t Shard::apply(Rule rule, const RuleOptions& options, const Range& range, const void* gradient,
                           const void* pulled, void* result) {
  std::uint64_t before = version();
  each_stripe(range, [&](Lock& lock, const Range& piece) {
    const std::size_t skipped = (piece.first - range.first) * element_;
    if (piece.first == 0) before = lock.updates;
    count_update(lock, rule != Rule::get);
    update(rule, options, lock.updates, 0, piece, past(gradient, skipped), past(pulled, skipped),
           past(result, skipped));
  });
  return before;
}

std::uint64_t Shard::apply(Rule rule, const RuleOptions& options, std::span<const Range> ranges, const void* gradient,
                           const void* pulled, void* result) {
  std::uint64_t before = version();
  std::size_t done = 0;
  for (const Range& range : ranges) {
    const std::uint64_t seen =
        apply(rule, options, range, past(gradient, done), past(pulled, done), past(result, done));
    if (&range == ranges.data()) before = seen;
    done += range.count * element_;
  }
  return before;
}

void Shard::count_update(Lock& lock, bool changes) {
  lock.updates += changes;
  if (&lock == locks_) header_.version.store(lock.updates, std::memory_order_release);
}

std::uint64_t Shard::group() {
  const Held held = hold(header_.gather);
  return header_.group;
}

Arrival Shard::gather(const Gathering& how, std::uint64_t clock, Rule rule, const RuleOptions& options,
                      const void* gradient, const Clocks& clocks) {
  const Arrival arrival = enter(how, clock);
  if (arrival != Arrival::gathered) return arrival;
  add(how.sum, options.scale, {0, count_}, gradient);
  return leave(how, rule, options, clocks);
}

Arrival Shard::enter(const Gathering& how, std::uint64_t clock) {
  const Held held = hold(header_.gather);
  const bool many = header_.arrived >= static_cast<std::uint32_t>(how.many);
  if (how.of_step && (clock < header_.group || (many && clock == header_.group))) return Arrival::dropped;
  if (many || (how.of_step && clock > header_.group)) return Arrival::full;
  ++header_.arrived;
  return Arrival::gathered;
}

void Shard::add(std::size_t number, double scale, const Range& range, const void* gradient) {
  RuleOptions scaled;
  scaled.scale = scale;
  each_stripe(range, [&](Lock&, const Range& piece) {
    update(Rule::add, scaled, 1, sum(number), piece, at(gradient, (piece.first - range.first) * element_), nullptr,
           nullptr);
  });
}

Arrival Shard::leave(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks) {
  {
    const Held held = hold(header_.gather);
    ++header_.done;
  }
  return apply_if_complete(how, rule, options, clocks) ? Arrival::applied : Arrival::gathered;
}

bool Shard::gathers_now() {
  const Held held = hold(header_.gather);
  return header_.arrived > 0;
}

// Returns the number of gathered gradients, which the caller must then apply; 0: more may still
// arrive.
std::uint32_t Shard::complete(const Gathering& how, const Clocks& clocks) {
  const Held held = hold(header_.gather);
  const std::uint32_t done = header_.done;
  const int expected = std::min(how.many, clocks.live());
  if (done == 0 || header_.arrived != done || static_cast<int>(done) < expected) return 0;
  header_.arrived = static_cast<std::uint32_t>(how.many) + 1;  // full, until applied
  header_.done = 0;
  return done;
}

bool Shard::apply_if_complete(const Gathering& how, Rule rule, const RuleOptions& options, const Clocks& clocks) {
  const std::uint32_t number = rule == Rule::get ? 0 : complete(how, clocks);
  if (number == 0) return false;
  apply_gathered(rule, options, number);
  release();
  return true;
}

std::uint32_t Shard::claim(const Gathering& how, const Clocks& clocks, void* sum_of_all) {
  const std::uint32_t number = complete(how, clocks);
  if (number > 0) {
    const Range all{0, count_};
    fold(all);  // no rank adds before release()
    std::copy_n(array(sum(0)), count_ * element_, static_cast<std::byte*>(sum_of_all));
    clear(sum(0), all);
  }
  return number;
}

void Shard::release() {
  const Held held = hold(header_.gather);
  ++header_.group;
  header_.arrived = 0;
}

void Shard::clear(std::size_t number, const Range& range) {
  std::fill_n(array(number, range.first), range.count * element_, std::byte{0});
}

// Adds all sums into the first, in their order.
void Shard::fold(const Range& range) {
  const RuleOptions plain;
  for (std::size_t i = 1; i < sums_; ++i) {
    update(Rule::add, plain, 1, sum(0), range, array(sum(i), range.first), nullptr, nullptr);
    clear(sum(i), range);
  }
}

void Shard::apply_gathered(Rule rule, RuleOptions options, std::uint32_t number) {
  options.scale = 1.0 / number;
  options.compensate = 0;
  each_stripe({0, count_}, [&](Lock& lock, const Range& piece) {
    fold(piece);
    count_update(lock, true);
    update(rule, options, lock.updates, 0, piece, array(sum(0), piece.first), nullptr, nullptr);
    clear(sum(0), piece);
  });
}

std::pair<std::uint64_t, std::uint64_t> Shard::average_with(Shard& other) {
  std::pair<std::uint64_t, std::uint64_t> before{version(), other.version()};
  if (owner_ == other.owner_) return before;
  const RuleOptions none;
  const bool mine_first = owner_ < other.owner_;  // every rank takes the lower owner's lock first
  for (std::size_t i = 0; i < stripes_; ++i) {
    const std::size_t stripe = (i + stripes_ * static_cast<std::size_t>(rank_) / 8) % stripes_;
    const Held first = hold((mine_first ? *this : other).locks_[stripe]);
    const Held second = hold((mine_first ? other : *this).locks_[stripe]);
    if (stripe == 0) before = {locks_[0].updates, other.locks_[0].updates};
    const std::size_t begin = stripe * stripe_;
    update(Rule::average, none, 1, 0, {begin, std::min(stripe_, count_ - begin)}, nullptr, nullptr,
           other.array(0, begin));
    count_update(locks_[stripe], true);
    other.count_update(other.locks_[stripe], true);
  }
  return before;
}

}  // namespace ringcomm::store
