// Builds the small host calls that device routes are composed of, and computes properties of device
// calls.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/call.hpp"
#include "codecs/wire_format.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

// Returns a small collective on host memory, as a subcall.
inline Call part_of(std::string name, Collective collective) {
  Call call;
  call.collective = collective;
  call.dtype = DType::uint8;
  call.name = std::move(name);
  call.agreed = call.is_subcall = true;
  return call;
}

// Makes the subcall's consistency check also compare the enclosing call, `original`. If ranks have
// already agreed on the enclosing call, nothing is compared. Completion of the subcall then shows
// only that all ranks have entered the enclosing call.
inline Call comparing(Call part, const Call& original) {
  part.agreed = original.agreed;
  part.enclosing_call = &original;
  return part;
}
inline Call comparison_of(const Call& original) {
  return comparing(part_of(original.name, Collective::barrier), original);
}

// Returns an all-gather of one record of `nbytes` bytes per rank.
inline Call records_of(std::string name, int ranks, const void* mine, std::size_t nbytes, void* all) {
  Call call = part_of(std::move(name), Collective::allgather);
  call.counts.assign(static_cast<std::size_t>(ranks), nbytes);
  call.input = mine;
  call.output = all;
  return call;
}

// Returns an all-reduce that replaces each rank's byte by the minimum over all ranks.
inline Call least_of(std::string name, std::uint8_t& byte) {
  Call call = part_of(std::move(name), Collective::allreduce);
  call.op = Op::min;
  call.input = call.output = &byte;
  call.count = 1;
  return call;
}

// Returns true if our kernels support everything that the call requires.
inline bool kernels_take(const Call& call) {
  if (call.collective == Collective::barrier || call.feedback || !rounds(call.wire) || !call.algorithm.empty())
    return false;
  return !computes(call.collective) || (call.op != Op::adasum && kernels::reduces(call.dtype, call.op));
}

// Returns the number of elements that a rank contributes.
inline std::size_t given_by(int rank, const Call& call) {
  if (call.collective == Collective::broadcast && rank != call.root) return 0;
  if (!has_blocks(call.collective)) return call.count;
  return call.collective == Collective::allgather ? call.counts[static_cast<std::size_t>(rank)] : total(call.counts);
}

// Returns the number of ranks, from rank 0 on, that a rank's result combines.
inline int combined_for(int rank, const Call& call, int ranks) {
  if (!is_scan(call.collective)) return ranks;
  return call.collective == Collective::scan ? rank + 1 : rank;
}

}  // namespace ringcomm
