// Defines the descriptor of a call: the fields that ranks compare before data moves, and the
// messages about differences. Descriptors are stored in mailboxes, and sent between hosts.
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
  std::uint8_t plan = 0;  // 1: a step of a plan; the engine compares these descriptors
  std::int32_t root = 0;
  std::uint64_t wire = 0;         // Wire::code
  std::uint64_t count = 0;        // elements; allgather: elements of this rank's part; alltoall: elements of a row
  std::uint64_t row = 1;          // elements of a row, if ranks exchange rows; the hash `shape` includes it
  std::uint64_t shape = 0;        // hash of the dimensions that must be equal on all ranks
  std::uint64_t speculation = 0;  // Speculation::numbers; may differ between ranks
  // All-to-all with blocks of different sizes: the hashes of the counts sent minus those of the
  // counts expected. The sum over all ranks is 0 if every rank expects what the other ranks send.
  // The digest excludes it.
  std::uint64_t balance = 0;
  ScaleBits pre, post;
  char algorithm[40] = {};     // never truncated: ranks that have joined build their call from it
  char name[40] = {};          // truncated; for messages, and compared if given
  std::uint8_t on_device = 0;  // Call::on_device
  char shape_text[23] = {};    // "(3, 4)", truncated; for messages
};
static_assert(sizeof(Descriptor) <= 192);

inline constexpr std::uint64_t kUneven = ~std::uint64_t{0};  // count of an all-to-all in which blocks differ in size
inline bool is_uneven(const Descriptor& d) {
  return static_cast<Collective>(d.collective) == Collective::alltoall && d.count == kUneven;
}

// Returns a hash of the descriptor. Calls with equal hashes agree, except with probability 2^-64.
// Calls with different hashes may still agree: only some ranks may give a name, and alltoall's
// count and the speculation may differ.
std::uint64_t digest_of(const Descriptor& call);

// Returns one sentence that names the call, the value of each rank, and the fix; empty if all ranks
// agree. `ranks[i]` is the rank of all[i]. Compares count and shape except where the collective
// allows them to differ (allgather's count).
std::string disagreement(std::span<const Descriptor> all, std::span<const int> ranks);

// Returns one sentence that names each pair of ranks with different counts, and the fix; empty if
// all counts agree. `counts` holds, for each rank, the elements that it sends to every rank, then
// those that it expects from every rank. `row`: elements of a row. Adds the ranks of these pairs to
// `involved`.
std::string counts_disagreement(std::span<const Descriptor> all, std::span<const std::uint64_t> counts,
                                std::uint64_t row, std::vector<int>& involved);

}  // namespace ringcomm
