// Watches processes through pidfds.
#include "shm/processes.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

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
  std::vector<int> pids;
  for (const auto& [pid, handle] : watched_) {
    if (handle.get() < 0 || !ended_among({&handle, 1}).empty()) pids.push_back(pid);
  }
  return pids;
}

// A pidfd becomes readable when its process ends, even before a parent has waited for it.
std::vector<int> ended_among(std::span<const FileHandle> pidfds) {
  std::vector<pollfd> polled;
  for (const FileHandle& fd : pidfds) polled.push_back({fd.get(), POLLIN, 0});  // poll ignores negative descriptors
  while (::poll(polled.data(), polled.size(), 0) < 0) {
    if (errno != EINTR) return {};
  }
  std::vector<int> ended;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents & (POLLIN | POLLHUP)) ended.push_back(static_cast<int>(i));
  }
  return ended;
}

}  // namespace ringcomm
