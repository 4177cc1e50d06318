// What users of the engine ask for: an operation by name, a bucket of a plan.
#pragma once

#include <cstddef>
#include <vector>

#include "base/call.hpp"
#include "base/types.hpp"

namespace ringcomm {

// A request by name. For allgather, reducescatter and alltoall on dimension 0: `rows` of `row` elements.
struct NamedRequest {
  Call call;                        // name, dtype, op, root, scales, wire, algorithm, input, output, count, shape
  std::size_t row = 1;              // elements of one row (allgather, reducescatter, alltoall)
  std::size_t rows = 0;             // this rank's first dimension
  std::vector<std::size_t> splits;  // alltoall: rows to each rank; empty: even
  // Output of a size known here may be given (call.output); else the core allocates it: Operation::output, counts.
};

// What a bucket travels as.
struct BucketWire {
  Wire usual{};
  Wire first{};  // in so many steps of the plan
  std::uint64_t first_steps = 0;
  bool feedback = false;  // what encoders hold back is added in the next step
};

// Matrices, one after the other as rows, of which two thin factors travel, once the first steps are over
// (engine/plans/low_rank.hpp).
struct LowRank {
  struct Matrix {
    std::size_t first, rows, columns;  // the element of the bucket that it begins with
  };
  std::size_t rank = 0;    // 0: none
  bool warm_start = true;  // each step goes on from the factors of the last one
  std::vector<Matrix> matrices{};
};

struct PlanBucket {
  DType dtype = DType::float32;
  std::size_t count = 0;
  void* data = nullptr;                  // reduced in place; null: where Plan::place() says
  std::vector<std::size_t> stretches{};  // elements of parts that may lie apart, all together `count`; empty: one
  BucketWire wire{};
  // What lies between gradients and is nobody's: zeros before it travels, lest what encoders make of it comes again, or
  // spoils the scale of what lies beside it.
  std::vector<Part> gaps{};
  LowRank low_rank{};
  bool on_device = false;  // its memory, on every rank: ready() says where and behind what. Neither gaps nor low rank
};

}  // namespace ringcomm
