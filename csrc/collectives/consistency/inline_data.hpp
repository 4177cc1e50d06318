// Defines limits for data that is sent within a consistency check by messages. Data is sent inline
// if it fits into the messages of the check and saves time: sending it to every rank must cost no
// more than the rounds of messages that it replaces.
#pragma once

#include <cstddef>

#include "base/types.hpp"
#include "collectives/choose.hpp"
#include "hierarchical/hosts.hpp"

namespace ringcomm {

// Limits in bytes of a rank's data; equal on all ranks.
struct InlineLimits {
  std::size_t reduced = 0;  // for collectives that merge
  std::size_t moved = 0;    // for other collectives
  std::size_t of(Collective collective) const { return merges(collective) ? reduced : moved; }
};

// Returns limits for checks in which every rank sends its own piece.
InlineLimits most_by_ranks(const Terms& terms, std::size_t size);
// Returns limits for checks in which each host's leader sends one piece for its host.
InlineLimits most_by_hosts(const Terms& terms, const Hosts& hosts);

}  // namespace ringcomm
