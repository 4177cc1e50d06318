#include "call/describe.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/fields.hpp"

namespace ringcomm {
namespace {

constexpr std::uint64_t kUneven = ~std::uint64_t{0};  // alltoall's count where blocks differ

// All-to-all: the size of every block that this rank sends or receives, or that they differ.
std::uint64_t even_row(const Call& call) {
  const auto other = [&](std::size_t count) { return count != call.counts[0]; };
  return std::ranges::any_of(call.counts, other) || std::ranges::any_of(call.receive_counts, other) ? kUneven
                                                                                                    : call.counts[0];
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
  if (call.about) return describe(*call.about, me);
  Descriptor mine = describe_kind(call);
  mine.count = call.elements();
  if (call.collective == Collective::allgather) mine.count = call.counts[static_cast<std::size_t>(me)];
  if (call.collective == Collective::alltoall) mine.count = even_row(call);
  mine.shape = call.shape;
  if (call.guess) mine.guess = call.guess->numbers;
  return mine;
}

void conclude(Call& call) {
  if (call.collective == Collective::alltoall) call.even = even_row(call) != kUneven;
  if (call.guess) call.guess->right = true;
}

void conclude(Call& call, std::span<const Descriptor> all) {
  std::vector<int> ranks(all.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  if (const std::string why = disagreement(all, ranks); !why.empty()) throw Error(ErrorKind::mismatch, why);
  const auto same = [&](const Descriptor& one) { return one.count == all[0].count && one.count != kUneven; };
  if (call.collective == Collective::alltoall) call.even = std::ranges::all_of(all, same);
  const auto guesses_alike = [&](const Descriptor& one) { return one.guess == all[0].guess; };
  if (call.guess) call.guess->right = std::ranges::all_of(all, guesses_alike);
}

}  // namespace ringcomm
