// What a rank says of the call it makes. All ranks' are compared before data moves; on a host they lie in mailboxes.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

// A kernels::Scale as bits that can be compared and sent.
struct ScaleBits {
  std::uint64_t factor = std::bit_cast<std::uint64_t>(1.0);
  std::int64_t divisor = 1;
  ScaleBits() = default;
  explicit ScaleBits(const kernels::Scale& scale)
      : factor(std::bit_cast<std::uint64_t>(scale.factor)), divisor(scale.divisor) {}
  kernels::Scale scale() const { return {std::bit_cast<double>(factor), divisor}; }
  bool operator==(const ScaleBits&) const = default;
};

struct Descriptor {
  std::uint8_t collective = 0, dtype = 0, op = 0;
  std::uint8_t plan = 0;  // 1: a step of a plan, on which only the engine agrees
  std::int32_t root = 0;
  std::uint64_t wire = 0;         // Wire::code
  std::uint64_t count = 0;        // elements; allgather: of this rank's part; alltoall: of a row
  std::uint64_t row = 1;          // elements of a row, where ranks exchange rows; the hash of the shape covers it
  std::uint64_t shape = 0;        // hash of the dimensions that must agree
  std::uint64_t speculation = 0;  // Speculation::numbers; ranks need not agree on it
  // All-to-all of blocks of different sizes: the hashes of the counts sent minus those of the counts expected. All
  // ranks' balances add up to 0 if every rank expects what the others send. No part of the digest.
  std::uint64_t balance = 0;
  ScaleBits pre, post;
  char algorithm[40] = {};     // whole: ranks that have joined make their call from it
  char name[40] = {};          // cut; for messages and compared when given
  std::uint8_t on_device = 0;  // Call::on_device
  char shape_text[23] = {};    // "(3, 4)", cut; for messages
};
static_assert(sizeof(Descriptor) <= 192);

inline constexpr std::uint64_t kUneven = ~std::uint64_t{0};  // an all-to-all's count where blocks differ in size
inline bool is_uneven(const Descriptor& d) {
  return static_cast<Collective>(d.collective) == Collective::alltoall && d.count == kUneven;
}

// Equal for calls that agree, and for others only by a chance of 2^-64. Calls that agree may yet differ in it: where a
// name is given on some ranks only, in alltoall's count, and in guesses.
std::uint64_t digest_of(const Descriptor& call);

// Empty if all agree; else one sentence that names the call, what each rank gave, and the fix. `ranks[i]` names entry
// i. count and shape are compared except where the collective allows them to differ (allgather's count).
std::string disagreement(std::span<const Descriptor> all, std::span<const int> ranks);

// Returns one sentence that names each pair of ranks whose counts differ, and the fix; empty if there is none.
// `counts`: of each rank in turn, the elements that it sends to every rank, then those that it expects from every rank.
// `row`: elements of a row. Adds the ranks of these pairs to `involved`.
std::string counts_disagreement(std::span<const Descriptor> all, std::span<const std::uint64_t> counts,
                                std::uint64_t row, std::vector<int>& involved);

}  // namespace ringcomm
