// Whether ranks of this host have died, by their processes.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "shm/processes.hpp"

namespace ringcomm {

class DeathWatch {
 public:
  void start(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
    processes_ = std::move(processes);
    rank_of_ = std::move(rank_of);
  }
  bool watches() const { return !rank_of_.empty(); }
  // Ranks that had ended when last asked too, and are not of those that `has_left`: the goodbye of a rank that left
  // before it ended may still be on its way.
  template <class HasLeft>
  std::vector<int> look(HasLeft&& has_left) {
    std::vector<int> now = ended(has_left), dead;
    for (const int rank : now) {
      if (std::find(suspects_.begin(), suspects_.end(), rank) != suspects_.end()) dead.push_back(rank);
    }
    suspects_ = std::move(now);
    return dead;
  }
  // Those whose process has ended by now.
  template <class HasLeft>
  std::vector<int> ended(HasLeft&& has_left) const {
    std::vector<int> found;
    if (!watches()) return found;
    for (const int pid : processes_->dead()) {
      const auto rank = rank_of_.find(pid);
      if (rank != rank_of_.end() && !has_left(rank->second)) found.push_back(rank->second);
    }
    return found;
  }

 private:
  std::shared_ptr<const Processes> processes_;
  std::map<int, int> rank_of_;  // of the processes, by number
  std::vector<int> suspects_;   // ended when last looked at
};

}  // namespace ringcomm
