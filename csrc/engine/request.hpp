// Requests to the engine: an operation by name, and a bucket of a plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/call.hpp"
#include "base/types.hpp"

namespace ringcomm {

// A request by name. allgather, reducescatter and alltoall work on dimension 0: `rows` of `row`
// elements.
struct NamedRequest {
  Call call;                        // name, dtype, op, root, scales, wire, algorithm, input, output, count, shape
  std::size_t row = 1;              // elements of one row (allgather, reducescatter, alltoall)
  std::size_t rows = 0;             // this rank's first dimension
  std::vector<std::size_t> splits;  // alltoall: rows to each rank; empty: even
  std::int32_t priority = 0;        // among operations that are ready, those of higher priority run first
  // If the output size is known, the caller may set call.output. Otherwise the core allocates it:
  // Operation::output, counts.
};

// Wire formats of a bucket.
struct BucketWire {
  Wire usual{};
  Wire first{};  // in the first `first_steps` steps of the plan
  std::uint64_t first_steps = 0;
  bool feedback = false;  // residuals of encoders are added in the next step
};

// Matrices of a bucket, in row-major order, that are sent as two thin factors once the first steps
// are over (engine/plans/low_rank.hpp).
struct LowRank {
  struct Matrix {
    std::size_t first, rows, columns;  // `first`: index of its first element in the bucket
  };
  std::size_t rank = 0;    // 0: none
  bool warm_start = true;  // each step starts from the factors of the last one
  std::vector<Matrix> matrices{};
};

struct PlanBucket {
  DType dtype = DType::float32;
  std::size_t count = 0;
  void* data = nullptr;                  // reduced in place; null: set by Plan::place()
  std::vector<std::size_t> stretches{};  // elements of each separately stored part, in total `count`; empty: one part
  BucketWire wire{};
  // Parts between gradients that belong to no tensor. They are set to zero before the bucket is
  // sent. Otherwise the encoder's residuals of them would accumulate, or spoil the scale of
  // neighbouring elements.
  std::vector<Part> gaps{};
  LowRank low_rank{};
  bool on_device = false;  // on every rank; ready() gives its location and event. Not with gaps or low rank
};

}  // namespace ringcomm
