// Stores the schedules of algorithms that users wrote. custom_algorithms.py adds a schedule after
// the prover has verified it, and all ranks have agreed on it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "schedule/schedule.hpp"

namespace ringcomm {

// This rank's schedules of custom algorithms, for groups of any size. Thread-safe.
class CustomAlgorithms {
 public:
  void add(const std::string& name, std::shared_ptr<const Schedule> schedule) {  // replaces an earlier one
    const std::lock_guard lock(mutex_);
    Key key{schedule->collective, schedule->rank, schedule->size, name};
    schedules_[std::move(key)] = std::move(schedule);
  }
  std::shared_ptr<const Schedule> find(Collective collective, int rank, int size, const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = schedules_.find({collective, rank, size, name});
    return found == schedules_.end() ? nullptr : found->second;
  }

 private:
  using Key = std::tuple<Collective, int, int, std::string>;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Schedule>> schedules_;
};

}  // namespace ringcomm
