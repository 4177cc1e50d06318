// What calls on devices are made of.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/call.hpp"
#include "codecs/wire_format.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

// A small collective of the host's.
inline Call part_of(std::string name, Collective collective) {
  Call call;
  call.collective = collective;
  call.dtype = DType::uint8;
  call.name = std::move(name);
  call.agreed = call.is_subcall = true;
  return call;
}

// With it ranks compare the call that it is a part of; if that is agreed, they know that all have come.
inline Call comparing(Call part, const Call& asked) {
  part.agreed = asked.agreed;
  part.enclosing_call = &asked;
  return part;
}
inline Call comparison_of(const Call& asked) { return comparing(part_of(asked.name, Collective::barrier), asked); }

// Everybody's record of so many bytes, by rank.
inline Call records_of(std::string name, int ranks, const void* mine, std::size_t nbytes, void* all) {
  Call call = part_of(std::move(name), Collective::allgather);
  call.counts.assign(static_cast<std::size_t>(ranks), nbytes);
  call.input = mine;
  call.output = all;
  return call;
}

// Each rank's byte becomes the least of all ranks'.
inline Call least_of(std::string name, std::uint8_t& byte) {
  Call call = part_of(std::move(name), Collective::allreduce);
  call.op = Op::min;
  call.input = call.output = &byte;
  call.count = 1;
  return call;
}

// Whether our kernels do all that a call asks for.
inline bool kernels_take(const Call& call) {
  if (call.collective == Collective::barrier || call.feedback || !rounds(call.wire) || !call.algorithm.empty())
    return false;
  return !computes(call.collective) || (call.op != Op::adasum && kernels::reduces(call.dtype, call.op));
}

// Elements that a rank gives.
inline std::size_t given_by(int rank, const Call& call) {
  if (call.collective == Collective::broadcast && rank != call.root) return 0;
  if (!has_blocks(call.collective)) return call.count;
  return call.collective == Collective::allgather ? call.counts[static_cast<std::size_t>(rank)] : total(call.counts);
}

// Of how many ranks a rank's result is, from rank 0 on.
inline int combined_for(int rank, const Call& call, int ranks) {
  if (!is_scan(call.collective)) return ranks;
  return call.collective == Collective::scan ? rank + 1 : rank;
}

}  // namespace ringcomm
