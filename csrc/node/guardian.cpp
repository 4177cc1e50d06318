#include "node/guardian.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr unsigned kLastDescriptor = ~0u;

// Whoever holds a copy of a rank's pipes keeps their readers waiting. `kept` is sorted.
void close_others(const std::vector<int>& kept) {
  unsigned next = 0;
  for (const int fd : kept) {
    const auto number = static_cast<unsigned>(fd);
    if (number > next) ::syscall(SYS_close_range, next, number - 1, 0);
    next = number + 1;
  }
  ::syscall(SYS_close_range, next, kLastDescriptor, 0);
}

// Ends the guardian if a rank says that processes may end now. True if the connection is closed.
bool closed(int connection) {
  char byte = 0;
  const ssize_t got = ::recv(connection, &byte, 1, MSG_DONTWAIT);
  if (got > 0) ::_exit(0);
  return got == 0 || errno != EAGAIN;
}

[[noreturn]] void guard(const std::vector<Guarded>& guarded, std::vector<pollfd>& asked, const std::vector<int>& kept,
                        int to) {
  ::setsid();  // not of the process group that launchers end
  ::prctl(PR_SET_NAME, "ringcomm-guard");
  close_others(kept);
  for (bool dead = false; !dead;) {
    if (::poll(asked.data(), asked.size(), -1) < 0 && errno != EINTR) ::_exit(0);
    for (std::size_t i = 0; i < guarded.size(); ++i) {
      const bool ended = asked[2 * i].revents != 0;
      if (!(asked[2 * i + 1].revents != 0 && closed(guarded[i].connection)) && !ended) continue;
      dead = true;
      if (::write(to, guarded[i].line.data(), guarded[i].line.size()) < 0) break;  // nobody listens
    }
  }
  ::_exit(0);  // the deaths that follow are consequences
}

}  // namespace

int start_guardian(const std::vector<Guarded>& guarded, int to) {
  // All memory is had before the fork.
  std::vector<pollfd> asked;
  std::vector<int> kept{to};
  for (const Guarded& one : guarded) {
    for (const int fd : {one.pidfd, one.connection}) {
      asked.push_back({fd, POLLIN, 0});  // poll passes over negative descriptors
      if (fd >= 0) kept.push_back(fd);
    }
  }
  std::sort(kept.begin(), kept.end());
  // Not fork(): what libraries have registered for it must not run here.
  const long pid = ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) guard(guarded, asked, kept, to);
  if (pid < 0) throw invalid("no process to watch the ranks: ", std::strerror(errno));
  return static_cast<int>(pid);
}

}  // namespace ringcomm
