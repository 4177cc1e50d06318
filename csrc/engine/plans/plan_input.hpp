// The data that a plan's caller passes to the worker for the step begun last. The caller writes it
// through Plan (plan.cpp), the worker reads it in PlanRun. While a step runs, both access only
// `filled` and `done`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/operation_state.hpp"

namespace ringcomm {

struct PlanInput {
  struct Bucket {
    bool scattered = false;                   // each stretch has its own address; otherwise all follow the first
    std::vector<void*> stretches{};           // address of each
    std::shared_ptr<MemoryLocation> place{};  // in this step; null: host memory
  };

  explicit PlanInput(std::size_t number_of_buckets) : filled(number_of_buckets + 1) {}

  // Used by the caller.
  bool begun = false;  // true until finish() is called
  OperationStatePtr step;
  std::vector<std::shared_ptr<Operation>> parts;  // OperationState::parts of `step`
  bool stepping() const { return begun || (step && !step->done()); }

  // Used by the caller until the flag is set; from then on by the worker, until the step is done.
  std::vector<Bucket> buckets;
  std::vector<std::uint8_t> present;  // one per item
  // by bucket; the last one: no more will be filled, and `present` is set
  std::vector<std::atomic<std::uint8_t>> filled;

  std::atomic<std::size_t> done{0};  // number of finished buckets; written by the worker

  bool whole() const { return filled.back().load(std::memory_order_acquire); }
  bool has(std::size_t bucket) const { return filled[bucket].load(std::memory_order_acquire) || whole(); }
};

}  // namespace ringcomm
