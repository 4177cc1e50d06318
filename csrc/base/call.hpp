// Describes one collective as a rank submits it to a channel: buffers, operation, and hints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/cuts.hpp"
#include "base/memory_location.hpp"
#include "base/received.hpp"
#include "base/scale.hpp"
#include "base/types.hpp"
#include "base/wire.hpp"

namespace ringcomm {

class Feedback;  // residuals of encoders, kept from call to call (codecs/feedback.hpp)

struct Fragment {
  const void* input = nullptr;
  void* output = nullptr;  // equal to `input` for an in-place call
  std::size_t count = 0;   // elements
};

struct Call;

// A call that may follow an exchange of counts. If all ranks expect the same counts and share
// memory, the call runs within the exchange, which then returns no counts.
struct Speculation {
  std::uint64_t numbers = 0;  // hash of all expected counts; not 0
  const Call* call = nullptr;
  bool right = false;  // true once the call has run
};

// Location of this rank's data. Buffers live until the task is done. `input == output`: in place.
struct CallBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  std::shared_ptr<MemoryLocation> place;  // location of all buffers; null: host memory
  // True: the array is on a device on every rank. The buffers of a placeholder may be elsewhere.
  bool on_device = false;
  // The array in pieces, if Channel::takes_fragments(). Then input and output are unused.
  std::vector<Fragment> fragments;
  std::vector<void*> output_per_rank;  // an ordered all-gather's output for each rank's part; empty: `output` holds all
  // Result of an ordered all-gather of which a rank knows only its own count. That is `count`, and
  // `counts` is empty. It outlives the task. Null: the counts are known.
  Received* received = nullptr;
  std::vector<std::size_t> fused_counts;  // element counts of the fused tensors, in order; empty: one tensor
};

// The operation. Ranks compare it; only the counts of an all-to-all may differ.
struct CallSpec {
  Collective collective = Collective::allreduce;
  DType dtype = DType::float32;  // collectives that only move bytes accept any dtype of the right size
  Op op = Op::sum;
  int root = 0;  // group rank
  // Elements of the buffer, for allreduce, reduce, broadcast, scan and exscan. For alltoall:
  // elements of a row, for error messages; 0: unknown.
  std::size_t count = 0;
  kernels::Scale pre, post;
  // Encoding of the elements in a schedule's messages. Data in shared memory is not encoded,
  // because reading a peer's memory is faster than encoding. Inline data is not encoded either.
  Wire wire;
  std::uint64_t shape = 0;  // hash of the dimensions that must be equal on all ranks
  bool even = false;        // alltoall: all blocks of all ranks have one size, and every rank knows it
  // Elements per rank. allgather: each rank's part (output holds all, input this rank's);
  // reducescatter: each rank's result (input holds all); alltoall: elements sent to each rank from
  // input, in order.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> receive_counts;  // alltoall: elements received from each rank, in order, into output
  std::string algorithm;                    // empty: chosen by the library
  std::string name, shape_text;
};

// A collective as the core executes it. The call must live until its task is done, because passes
// refer to the call.
struct Call : CallBuffers, CallSpec {
  Feedback* feedback = nullptr;          // residuals of encoders; may be null; outlives the call
  std::uint64_t tensor = 0;              // key of this call's residuals in `feedback`
  Speculation* speculation = nullptr;    // for an exchange of counts; lives as long as the buffers
  std::uint64_t descriptor_key = 0;      // calls with equal keys have equal descriptors; 0: unknown
  bool agreed = false;                   // the engine has compared the descriptors already
  const Call* enclosing_call = nullptr;  // the call that ranks compare instead of this one, which is a part of it
  bool is_subcall = false;               // part of another call; only that call is counted
  // Some ranks have joined and contribute placeholders. The other ranks scale their inputs before
  // the call.
  bool has_placeholders = false;

  std::size_t elements() const {  // elements of the complete buffer
    return collective == Collective::barrier ? 0 : has_blocks(collective) ? total(counts) : count;
  }
  std::size_t nbytes() const { return elements() * size_of(dtype); }
  std::byte* part_from(int rank) const {  // address of a rank's part in an all-gather's output
    return output_per_rank.empty() ? at(output, start_of(counts, rank) * size_of(dtype))
                                   : static_cast<std::byte*>(output_per_rank[static_cast<std::size_t>(rank)]);
  }
};

}  // namespace ringcomm
