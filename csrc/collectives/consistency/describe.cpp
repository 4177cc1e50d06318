// Fills descriptors from calls, and checks that the counts of an all-to-all balance.
#include "collectives/consistency/describe.hpp"

#include <algorithm>
#include <numeric>

#include "base/fields.hpp"

namespace ringcomm {
namespace {

// Returns the size of this rank's blocks in an all-to-all; kUneven if they differ.
std::uint64_t even_row(const Call& call) {
  const auto other = [&](std::size_t count) { return count != call.counts[0]; };
  return std::ranges::any_of(call.counts, other) || std::ranges::any_of(call.receive_counts, other) ? kUneven
                                                                                                    : call.counts[0];
}

// Returns a hash of "`from` sends `count` elements to `to`"; 0 if count is 0. The mixer is from
// Steele et al., SplitMix, OOPSLA 2014.
std::uint64_t hash_of(std::size_t from, std::size_t to, std::uint64_t count) {
  if (count == 0) return 0;
  std::uint64_t hash = count * 0x9E3779B97F4A7C15ull + (std::uint64_t{from} << 32 | to);
  hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ hash >> 27) * 0x94D049BB133111EBull;
  return hash ^ hash >> 31;
}

// Computes Descriptor::balance. `sent` and `expected` return the counts to and from each rank.
template <class Sent, class Expected>
std::uint64_t balance_of(std::size_t me, std::size_t ranks, Sent sent, Expected expected) {
  std::uint64_t balance = 0;
  for (std::size_t other = 0; other < ranks; ++other)
    balance += hash_of(me, other, sent(other)) - hash_of(other, me, expected(other));
  return balance;
}

// Returns a rank's balance. If its blocks have equal sizes, the rank publishes no balance: it is
// computed here from the size.
std::uint64_t balance_of(const Descriptor& descriptor, std::size_t me, std::size_t ranks) {
  if (is_uneven(descriptor)) return descriptor.balance;
  const auto even = [&](std::size_t) { return descriptor.count; };
  return balance_of(me, ranks, even, even);
}

bool balanced(std::span<const Descriptor> all) {
  std::uint64_t balance = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) balance += balance_of(all[rank], rank, all.size());
  return balance == 0;
}

}  // namespace

Descriptor describe_kind(const Call& call) {
  Descriptor d;
  d.collective = static_cast<std::uint8_t>(call.collective);
  d.dtype = static_cast<std::uint8_t>(call.dtype);
  if (computes(call.collective)) {
    d.op = static_cast<std::uint8_t>(call.op);
    d.pre = ScaleBits(call.pre);
    d.post = ScaleBits(call.post);
  }
  d.wire = call.wire.code();
  d.on_device = call.on_device;
  if (has_root(call.collective)) d.root = call.root;
  write_field(d.algorithm, call.algorithm);
  write_field(d.name, call.name);
  write_field(d.shape_text, call.shape_text);
  return d;
}

Descriptor describe(const Call& call, int me) {
  if (call.enclosing_call) return describe(*call.enclosing_call, me);
  Descriptor mine = describe_kind(call);
  mine.count = call.elements();
  if (call.collective == Collective::allgather) mine.count = call.counts[static_cast<std::size_t>(me)];
  if (call.collective == Collective::alltoall) mine.count = even_row(call);
  if (is_uneven(mine)) {
    mine.balance = balance_of(
        static_cast<std::size_t>(me), call.counts.size(), [&](std::size_t to) { return call.counts[to]; },
        [&](std::size_t from) { return call.receive_counts[from]; });
  }
  mine.shape = call.shape;
  if (call.speculation) mine.speculation = call.speculation->numbers;
  return mine;
}

void conclude(Call& call) {
  if (call.collective == Collective::alltoall) call.even = even_row(call) != kUneven;
  if (call.speculation) call.speculation->right = true;
}

bool conclude(Call& call, std::span<const Descriptor> all) {
  std::vector<int> ranks(all.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  if (const std::string why = disagreement(all, ranks); !why.empty()) throw Error(ErrorKind::mismatch, why);
  const auto same = [&](const Descriptor& descriptor) {
    return descriptor.count == all[0].count && descriptor.count != kUneven;
  };
  const bool even = std::ranges::all_of(all, same);
  if (static_cast<Collective>(all[0].collective) == Collective::alltoall && !even && !balanced(all)) return false;
  if (call.collective == Collective::alltoall) call.even = even;
  const auto speculations_equal = [&](const Descriptor& descriptor) {
    return descriptor.speculation == all[0].speculation;
  };
  if (call.speculation) call.speculation->right = std::ranges::all_of(all, speculations_equal);
  return true;
}

std::vector<std::uint64_t> counts_of(const Call& call) {
  if (call.enclosing_call) return counts_of(*call.enclosing_call);
  std::vector<std::uint64_t> counts(call.counts.begin(), call.counts.end());
  counts.insert(counts.end(), call.receive_counts.begin(), call.receive_counts.end());
  return counts;
}

Error counts_mismatch(const Call& call, std::span<const Descriptor> all, std::span<const std::uint64_t> counts) {
  std::vector<int> involved;
  const std::string why =
      counts_disagreement(all, counts, call.enclosing_call ? call.enclosing_call->count : call.count, involved);
  std::ranges::sort(involved);
  const auto [first, last] = std::ranges::unique(involved);
  involved.erase(first, last);
  return {ErrorKind::mismatch, why, std::move(involved)};
}

}  // namespace ringcomm
