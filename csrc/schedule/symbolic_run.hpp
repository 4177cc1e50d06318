// Runs the schedules of all ranks on symbols, with the strictest permitted transport: every send
// waits for its receive. The prover and the pictures use it.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/symbols.hpp"

namespace ringcomm {

// Completeness of each block when each round begins, and at the end: [rank][round][block].
using History = std::vector<std::vector<std::vector<double>>>;

struct SymbolicRun {
  bool encoding = false;                     // encodes each sent block, unless unchanged since it was sent or received
  History* history = nullptr;                // null: not recorded
  std::vector<Schedule>* ordered = nullptr;  // schedules in which to set open operand orders; null: none
};

// Replaces the values by those after the last round. Returns why the schedules cannot run to their
// end; empty if they can. Steps must name existing ranks and blocks.
std::string run_on_symbols(const std::vector<Schedule>& schedules, Symbols& symbols, Values& values,
                           const SymbolicRun& wanted = {});

// Returns the size class of a block. Blocks of one class have the same size on all ranks. The sizes
// of an all-to-all's blocks are given by the caller, and are not checked: all are in one class.
inline int size_class(const Schedule& s, int block) {
  if (s.collective == Collective::alltoall) return 0;
  return block < s.blocks ? block : s.temps[static_cast<std::size_t>(block - s.blocks)];
}

// Returns "rank 2, round 3": the start of every message about a moment of a schedule.
std::string moment_of(std::size_t rank, std::size_t round);

}  // namespace ringcomm
