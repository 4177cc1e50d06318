// Detects peers that left, failed or died, and makes the errors that report them.
//
// A rank ends its participation in one of three ways. It leaves: it closes the communicator or ends
// its script. Before that, it publishes its departure in its state in shared memory or in a goodbye
// message. It fails: a call was interrupted or met an error, and the rank publishes the failure in
// its state. It dies: its process ends without a message, which only processes of its host can
// detect. Every wait for a peer checks for all three, at most once in kLookEvery, and throws the
// error that is made here.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "shm/processes.hpp"

namespace ringcomm {

Error left_error(const std::vector<int>& ranks);    // kind left: only calls that need the ranks fail
Error failed_error(const std::vector<int>& ranks);  // kind peer_lost
Error died_error(const std::vector<int>& ranks);    // kind peer_lost

inline constexpr std::int64_t kLookEvery = 10'000'000;  // ns between two checks of processes; each is a system call

class PeerMonitor {
 public:
  // `rank_of` maps process ids of the host's other ranks to ranks.
  void watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
    processes_ = std::move(processes);
    rank_of_ = std::move(rank_of);
  }
  bool watches() const { return !rank_of_.empty(); }
  bool due() { return due_.at(now_ns()); }  // true if the next check is due
  // Returns ranks that have died: their process had ended at the previous check too, and
  // `has_left(rank)` is false. One check does not suffice, because the goodbye message of a rank
  // that left may arrive a little after its process has ended.
  template <class HasLeft>
  std::vector<int> dead(HasLeft&& has_left) {
    std::vector<int> now = ended(has_left), found;
    std::ranges::copy_if(now, std::back_inserter(found), [&](int rank) { return std::ranges::count(suspects_, rank); });
    suspects_ = std::move(now);
    return found;
  }
  // Returns the ranks of processes that have ended by now, except ranks that have left.
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
  std::map<int, int> rank_of_;
  std::vector<int> suspects_;  // their process had ended at the last check
  Every due_{kLookEvery};
};

}  // namespace ringcomm
