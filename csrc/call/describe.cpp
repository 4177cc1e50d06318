#include "call/describe.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr std::uint64_t kUneven = ~std::uint64_t{0};  // alltoall's count where blocks differ

void put(std::span<char> field, std::string_view text) {
  std::memcpy(field.data(), text.data(), std::min(text.size(), field.size() - 1));
}

// All-to-all: the size of every block that this rank sends or receives, or that they differ.
std::uint64_t even_row(const Call& call) {
  const auto other = [&](std::size_t count) { return count != call.counts[0]; };
  return std::ranges::any_of(call.counts, other) || std::ranges::any_of(call.receive_counts, other) ? kUneven
                                                                                                    : call.counts[0];
}

}  // namespace

Descriptor describe(const Call& call, int me) {
  if (call.about) return describe(*call.about, me);
  Descriptor mine;
  mine.collective = static_cast<std::uint8_t>(call.collective);
  mine.dtype = static_cast<std::uint8_t>(call.dtype);
  mine.op = static_cast<std::uint8_t>(call.op);
  mine.wire = call.wire.code();
  mine.root = call.root;
  mine.count = call.elements();
  if (call.collective == Collective::allgather) mine.count = call.counts[static_cast<std::size_t>(me)];
  if (call.collective == Collective::alltoall) mine.count = even_row(call);
  mine.shape = call.shape;
  mine.on_device = call.on_device;
  if (call.guess) mine.guess = call.guess->numbers;
  mine.pre = ScaleBits(call.pre);
  mine.post = ScaleBits(call.post);
  put(mine.algorithm, call.algorithm);
  put(mine.name, call.name);
  put(mine.shape_text, call.shape_text);
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
