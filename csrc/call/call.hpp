// What one rank asks of a channel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "kernels/kernels.hpp"
#include "memory/fragments.hpp"

namespace ringcomm {

// Buffers live until the task is done. `input == output`: in place.
struct Call {
  Collective collective = Collective::allreduce;
  DType dtype = DType::float32;  // collectives that only move bytes take any dtype (of the same size)
  Op op = Op::sum;
  int root = 0;           // group rank
  std::string algorithm;  // empty: chosen
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements of the buffer: allreduce, reduce, broadcast
  // Elements per rank. allgather: of each rank's part (output holds all, input this rank's); reducescatter: of each
  // rank's result (input holds all); alltoall: sent to each rank from input, in order.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> receive_counts;  // alltoall: from each rank, in order, into output
  kernels::Scale pre, post;
  std::optional<DType> wire;  // travels as this floating dtype
  std::string name;
  std::uint64_t shape = 0;  // hash of dimensions that must agree
  std::string shape_text;
  bool even = false;    // alltoall: all blocks of all ranks have one size, and every rank knows it
  bool agreed = false;  // the engine has compared it already
  // Group ranks, sorted, that take part without data, the same list on every rank. Their input and output are null; of
  // a reduction they leave the result as it is without them, of other collectives they give nothing. Never the root.
  std::vector<int> absent;
  // where Channel::takes_fragments: the array lies in these, one behind the other, not in input and output
  std::vector<Fragment> fragments;
  std::vector<std::size_t> parts;  // adasum: elements of the vectors that lie one behind the other; empty: one vector

  bool is_absent(int rank) const { return std::binary_search(absent.begin(), absent.end(), rank); }
};

}  // namespace ringcomm
