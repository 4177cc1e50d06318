// Processes of this host that somebody depends on, and which of them have ended. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "shm/file_handle.hpp"

namespace ringcomm {

class Processes {
 public:
  void watch(int pid);  // the process of that number now. Does nothing where the kernel has no descriptor to give
  std::vector<int> dead() const;  // numbers of those that have ended

 private:
  mutable std::mutex mutex_;
  std::map<int, FileHandle> watched_;  // by number: a pidfd; an invalid one if it had ended before
};

// Which of these pidfds (-1: none) belong to a process that has ended, as indices of the list.
std::vector<int> ended_among(std::span<const FileHandle> pidfds);

}  // namespace ringcomm
