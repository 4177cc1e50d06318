// Small calls whose data is sent within the consistency check: in mailboxes (memory_pass.cpp) or in messages
// (message_check.cpp). When the payloads of all ranks have arrived, every rank computes its complete result itself.
#pragma once

#include <cstddef>
#include <span>

#include "base/call.hpp"

namespace ringcomm {

// bytes of all ranks' payloads: each rank reads them all
inline constexpr std::size_t kPayloadsTogether = 16 << 10;
inline constexpr std::size_t kMergedTogether = 64 << 10, kLongestPiece = 16 << 10;  // where they are merged on the way
inline constexpr std::size_t kMostPayloads = kPayloadsTogether / 64;                // ranks

// Whether no rank's payload is of more than `most` bytes; the same on all ranks if they agree. An all-to-all's blocks
// have to be known to be even.
bool fits_inline(const Call& call, int ranks, std::size_t most);
std::size_t payload_bytes(const Call& call, int rank);  // all that it gives; of an all-to-all, its own row
std::size_t publish_payload(const Call& call, int me, std::byte* to);  // bytes written
// By rank. Returns how many bytes of the others' it has read.
std::size_t collect_payloads(const Call& call, int me, std::span<const std::byte* const> payloads);

// In two steps, of calls that compute: payloads of some ranks into one, and the result from such that are of all ranks.
// What lies between is rounded to the call's dtype, and may overflow it, as on the way through any schedule.
std::size_t merge_payloads(const Call& call, std::span<const std::byte* const> payloads, const kernels::Scale& pre,
                           std::byte* to);  // bytes written
void collect_merged(const Call& call, int me, std::span<const std::byte* const> merged);

}  // namespace ringcomm
