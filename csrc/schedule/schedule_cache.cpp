// Implements the cache of schedules.
#include "schedule/schedule_cache.hpp"

namespace ringcomm {

std::shared_ptr<const Schedule> ScheduleCache::get(const Algorithm& algorithm, int rank, int size, int root) {
  std::shared_ptr<const Schedule>& kept = schedules_[{&algorithm, rank, size, algorithm.rooted() ? root : 0}];
  if (kept) return kept;
  auto made = std::make_shared<const Schedule>(schedule_of(algorithm, rank, size, root));
  kept = made;
  for (const Round& round : made->rounds) steps_ += 1 + round.size();
  if (steps_ > kSteps) {
    schedules_.clear();
    steps_ = 0;
  }
  return made;
}

}  // namespace ringcomm
