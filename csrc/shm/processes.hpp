// Watches processes of this host, and reports which have ended. Thread-safe. For PeerMonitor.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "shm/file_handle.hpp"

namespace ringcomm {

class Processes {
 public:
  void watch(int pid);            // the process that has this id now; does nothing if the kernel provides no pidfd
  std::vector<int> dead() const;  // ids of the processes that have ended

 private:
  mutable std::mutex mutex_;
  std::map<int, FileHandle> watched_;  // process id -> pidfd; an invalid one if the process had ended before
};

// Returns the indices in `pidfds` of processes that have ended. Skips invalid handles (-1).
std::vector<int> ended_among(std::span<const FileHandle> pidfds);

}  // namespace ringcomm
