#include "node/processes.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace ringcomm {

void Processes::watch(int pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0 && errno != ESRCH) return;
  const std::lock_guard lock(mutex_);
  watched_.erase(pid);
  watched_.emplace(pid, FileHandle(fd));
}

std::vector<int> Processes::dead() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> pidfds, pids;
  for (const auto& [pid, handle] : watched_) {
    if (handle.get() < 0) {
      pids.push_back(pid);
    } else {
      pidfds.push_back(handle.get());
    }
  }
  const std::vector<int> ended = ended_among(pidfds);
  for (const auto& [pid, handle] : watched_) {
    const bool has_ended = std::any_of(
        ended.begin(), ended.end(), [&](int place) { return pidfds[static_cast<std::size_t>(place)] == handle.get(); });
    if (has_ended) pids.push_back(pid);
  }
  return pids;
}

// A pidfd becomes readable when its process ends, also before anybody has waited for it.
std::vector<int> ended_among(const std::vector<int>& pidfds) {
  std::vector<pollfd> asked;
  for (const int fd : pidfds) asked.push_back({fd, POLLIN, 0});  // poll passes over negative descriptors
  while (::poll(asked.data(), asked.size(), 0) < 0) {
    if (errno != EINTR) return {};
  }
  std::vector<int> places;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].revents & (POLLIN | POLLHUP)) places.push_back(static_cast<int>(i));
  }
  return places;
}

}  // namespace ringcomm
