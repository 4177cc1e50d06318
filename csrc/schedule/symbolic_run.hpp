// Runs the schedules of all ranks on symbols, under the harshest transport allowed: a send waits for its receive.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/symbols.hpp"

namespace ringcomm {

// How complete each block is as each round begins, and at the end: [rank][round][block].
using History = std::vector<std::vector<std::vector<double>>>;

struct SymbolicRun {
  bool encoding = false;  // what is sent, and was not sent or received as it is before, becomes its sender's own value
  History* history = nullptr;                // if it is wanted
  std::vector<Schedule>* ordered = nullptr;  // the same schedules, if open operand orders are to be decided
};

// Replaces the values by what they are after the last round. Returns why it cannot be run to its end; empty if it can.
// Steps must name ranks and blocks that exist.
std::string run_on_symbols(const std::vector<Schedule>& schedules, Symbols& symbols, Values& values,
                           const SymbolicRun& wanted = {});

// Blocks of one class are of one size on all ranks. All-to-all has its sizes from the caller: there all blocks are in
// one class.
inline int size_class(const Schedule& s, int block) {
  if (s.collective == Collective::alltoall) return 0;
  return block < s.blocks ? block : s.temps[static_cast<std::size_t>(block - s.blocks)];
}

// "rank 2, round 3": the beginning of every sentence about a moment of a schedule.
std::string moment_of(std::size_t rank, std::size_t round);

}  // namespace ringcomm
