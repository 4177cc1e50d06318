// Named operations and plans for _named.pxi and _plan.pxi, with types that Cython can pass.
#pragma once

#include "border/errors.hpp"
#include "device/device_location.hpp"
#include "engine/engine.hpp"
#include "engine/worker/queue.hpp"
#include "engine/worker/worker.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline bool failed(const Operation& operation) { return operation.error() != nullptr; }
inline void check(const Operation& operation) { rethrow(operation.error()); }
inline std::uintptr_t output_of(const Operation& operation) {
  return reinterpret_cast<std::uintptr_t>(operation.output.get());
}
inline PlanBucket bucket(int dtype, std::vector<std::size_t> stretches, std::uint64_t wire, bool feedback,
                         std::uint64_t first, std::uint64_t first_steps,
                         const std::vector<std::pair<std::size_t, std::size_t>>& gaps, std::size_t rank,
                         bool warm_start, const std::vector<std::vector<std::size_t>>& matrices, bool on_device) {
  const std::size_t count = total(stretches);
  PlanBucket made{static_cast<DType>(dtype),
                  count,
                  nullptr,
                  std::move(stretches),
                  {Wire::of(wire), Wire::of(first), first_steps, feedback}};
  for (const auto& [start, elements] : gaps) made.gaps.push_back({start, elements});
  made.low_rank = {rank, warm_start, {}};
  for (const auto& matrix : matrices) made.low_rank.matrices.push_back({matrix.at(0), matrix.at(1), matrix.at(2)});
  made.on_device = on_device;
  return made;
}
inline std::shared_ptr<Plan> make_plan(Engine& engine, int set, std::string name, std::vector<PlanBucket> buckets,
                                       int op, double pre, double post, std::size_t items, std::shared_ptr<Node> node,
                                       int slot, std::string algorithm, bool by_priority, bool overlaps) {
  return engine.make_plan(set, std::move(name), std::move(buckets), static_cast<Op>(op), {pre, 1}, {post, 1}, items,
                          std::move(node), slot, std::move(algorithm), by_priority, overlaps);
}
// Returns the plan's residuals; the pointer keeps the plan alive.
inline std::shared_ptr<Feedback> feedback_of(const std::shared_ptr<Plan>& plan) { return {plan, plan->feedback()}; }
}  // namespace ringcomm_border
