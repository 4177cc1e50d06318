// What passes between a plan's caller and the worker that runs it, of the step begun last. The caller writes it through
// Plan (plan.cpp), the worker reads it in PlanRun; `filled` and `done` are all that both look at while a step runs.
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
    bool apart = false;                       // each stretch where it says; else all of them behind the first
    std::vector<void*> stretches{};           // where each lies
    std::shared_ptr<MemoryLocation> place{};  // of this step; null: the host's memory
  };

  explicit PlanInput(std::size_t number_of_buckets) : filled(number_of_buckets + 1) {}

  // The caller's.
  bool begun = false;  // and not handed over whole
  OperationStatePtr step;
  bool stepping() const { return begun || (step && !step->done()); }

  // The caller's until the flag is set: the worker's from then on, until the step is done.
  std::vector<Bucket> buckets;
  std::vector<std::uint8_t> present;              // of its items
  std::vector<std::atomic<std::uint8_t>> filled;  // by bucket; the last one: nothing more will be, and `present` is

  std::atomic<std::size_t> done{0};  // buckets; counted by the worker

  bool whole() const { return filled.back().load(std::memory_order_acquire); }
  bool has(std::size_t bucket) const { return filled[bucket].load(std::memory_order_acquire) || whole(); }
};

}  // namespace ringcomm
