// What one rank asks of a channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/cuts.hpp"
#include "base/memory_location.hpp"
#include "base/scale.hpp"
#include "base/types.hpp"
#include "base/wire.hpp"

namespace ringcomm {

class Feedback;  // what encoders hold back from call to call (codecs/feedback.hpp)

struct Fragment {
  const void* input = nullptr;
  void* output = nullptr;  // the same: in place
  std::size_t count = 0;   // elements
};

struct Call;

// What follows an exchange of numbers, if they come as this rank expects. If all ranks expect the same, and all of them
// share memory, the call takes place along with the exchange, which then gives no numbers.
struct Speculation {
  std::uint64_t numbers = 0;  // a hash of all that are expected, not 0
  const Call* call = nullptr;
  bool right = false;  // it has taken place
};

// Where this rank's data is. Buffers live until the task is done. `input == output`: in place.
struct CallBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  std::shared_ptr<MemoryLocation> place;  // of all buffers; null: the host's memory
  bool on_device = false;                 // of the array on every rank, wherever a stand-in's buffers lie
  // where Channel::takes_fragments: the array lies in these, one behind the other, not in input and output
  std::vector<Fragment> fragments;
  std::vector<void*>
      output_per_rank;  // of an ordered all-gather: each rank's part goes to one of these; empty: all to output
  std::vector<std::size_t> fused_counts;  // elements of the tensors fused in it, one behind the other; empty: it is one
};

// The operation. It is equal on every rank, except for the counts of an all-to-all, and ranks compare it.
struct CallSpec {
  Collective collective = Collective::allreduce;
  DType dtype = DType::float32;  // collectives that only move bytes take any dtype (of the same size)
  Op op = Op::sum;
  int root = 0;  // group rank
  // Elements of the buffer: allreduce, reduce, broadcast, scan, exscan. Alltoall: of a row, for messages; 0: unknown.
  std::size_t count = 0;
  kernels::Scale pre, post;
  // What elements travel as in a schedule's messages. Where ranks share memory nothing is encoded, for reading a
  // neighbour's memory is faster than encoding is; nor what is so small that it goes with the comparison of calls.
  Wire wire;
  std::uint64_t shape = 0;  // hash of dimensions that must agree
  bool even = false;        // alltoall: all blocks of all ranks have one size, and every rank knows it
  // Elements per rank. allgather: of each rank's part (output holds all, input this rank's); reducescatter: of each
  // rank's result (input holds all); alltoall: sent to each rank from input, in order.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> receive_counts;  // alltoall: from each rank, in order, into output
  std::string algorithm;                    // empty: chosen
  std::string name, shape_text;
};

// The call lives until its task is done, for passes refer to it. Its own members are for one path each.
struct Call : CallBuffers, CallSpec {
  Feedback* feedback = nullptr;          // of encoders: may be null; outlives the call
  std::uint64_t tensor = 0;              // of those that it is for
  Speculation* speculation = nullptr;    // of an exchange; lives as long as the buffers
  bool agreed = false;                   // the engine has compared it already
  const Call* enclosing_call = nullptr;  // what ranks compare in place of this one, which is a part of it
  bool is_subcall = false;               // of another call, which counts by itself
  bool stand_ins = false;                // of ranks that have joined: the others' inputs are scaled first

  std::size_t elements() const {  // of the whole buffer
    return collective == Collective::barrier ? 0 : has_blocks(collective) ? total(counts) : count;
  }
  std::size_t nbytes() const { return elements() * size_of(dtype); }
  std::byte* part_from(int rank) const {  // where an all-gather has it
    return output_per_rank.empty() ? at(output, start_of(counts, rank) * size_of(dtype))
                                   : static_cast<std::byte*>(output_per_rank[static_cast<std::size_t>(rank)]);
  }
};

}  // namespace ringcomm
