// Caches the schedules that a channel runs; one thread uses it at a time. It holds up to kSteps
// steps (20 bytes each), and then drops all schedules.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "schedule/registry.hpp"

namespace ringcomm {

class ScheduleCache {
 public:
  std::shared_ptr<const Schedule> get(const Algorithm& algorithm, int rank, int size, int root);

 private:
  static constexpr std::size_t kSteps = std::size_t{1} << 20;

  std::map<std::tuple<const Algorithm*, int, int, int>, std::shared_ptr<const Schedule>> schedules_;
  std::size_t steps_ = 0;
};

}  // namespace ringcomm
