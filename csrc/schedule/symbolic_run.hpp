// Runs the schedules of all ranks on symbols, under the harshest transport allowed: a send waits for its receive.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/symbols.hpp"

namespace ringcomm {

// values[rank][block], data and scratch. Replaces them by what they are after the last round.
// Returns why it cannot be run to its end; empty if it can. Steps must name ranks and blocks that exist.
using Values = std::vector<std::vector<Symbols::Id>>;
// `encoding`: what is sent, and was not sent or received as it is before, becomes a value of its sender's own.
std::string run_on_symbols(const std::vector<Schedule>& schedules, Symbols& symbols, Values& values,
                           bool encoding = false);

// Blocks of one class are of one size on all ranks. All-to-all has its sizes from the caller: there all blocks are in
// one class.
inline int size_class(const Schedule& s, int block) {
  if (s.collective == Collective::alltoall) return 0;
  return block < s.blocks ? block : s.temps[static_cast<std::size_t>(block - s.blocks)];
}

// "rank 2, round 3": the beginning of every sentence about a place in a schedule.
std::string place_of(std::size_t rank, std::size_t round);

}  // namespace ringcomm
