// Computes small calls, with data that is sent within the consistency check: in mailboxes
// (memory_pass.cpp) or in messages (message_check.cpp). When the payloads of all ranks have
// arrived, every rank computes its complete result itself.
#pragma once

#include <cstddef>
#include <span>

#include "base/call.hpp"

namespace ringcomm {

// Bytes of all ranks' payloads together: each rank reads all of them.
inline constexpr std::size_t kPayloadsTogether = 16 << 10;
// Limits if payloads are merged during the exchange.
inline constexpr std::size_t kMergedTogether = 64 << 10, kLongestPiece = 16 << 10;
inline constexpr std::size_t kMostPayloads = kPayloadsTogether / 64;  // ranks

// Returns whether every rank's payload has at most `most` bytes. Equal on all ranks if their calls
// agree. False for an all-to-all unless its blocks are known to be even.
bool fits_inline(const Call& call, int ranks, std::size_t most);
// Returns whether the data fits into call headers. False for collectives that may be exchanges of
// counts: the call that follows writes the header, and ranks may differ in what follows.
bool fits_header(const Call& call, int ranks);
std::size_t payload_bytes(const Call& call, int rank);  // the rank's complete input; for an all-to-all, its row
std::size_t publish_payload(const Call& call, int me, std::byte* to);  // returns the bytes written
// Computes this rank's result from the payloads, by rank. This rank's own may be its input. Returns
// the bytes read from peers' payloads.
std::size_t collect_payloads(const Call& call, int me, std::span<const std::byte* const> payloads);

// These functions reduce in two steps. The first merges payloads of some ranks into one; the second
// computes the result from merged payloads of all ranks. Intermediate results are rounded to the
// call's dtype and may overflow it, as in any schedule.
std::size_t merge_payloads(const Call& call, std::span<const std::byte* const> payloads, const kernels::Scale& pre,
                           std::byte* to);  // returns the bytes written
void collect_merged(const Call& call, int me, std::span<const std::byte* const> merged);

}  // namespace ringcomm
