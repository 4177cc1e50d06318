// Implements the guardian: waits for the first death, prints that rank's line, and ends the job.
#include "shm/guardian.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr unsigned kLastDescriptor = ~0u;
constexpr int kAfterMs = 5000;
constexpr int kAlone = 2;  // maximum seconds that the guardian runs after the last rank of its host

// Closes all descriptors except `kept` (sorted). While a copy of a rank's pipe is open, the pipe's
// reader waits for more data.
void close_others(const std::vector<int>& kept) {
  unsigned next = 0;
  for (const int fd : kept) {
    const auto number = static_cast<unsigned>(fd);
    if (number > next) ::syscall(SYS_close_range, next, number - 1, 0);
    next = number + 1;
  }
  ::syscall(SYS_close_range, next, kLastDescriptor, 0);
}

// Ends the guardian if the rank has sent a byte. Returns whether the connection is closed.
bool closed(int connection) {
  char byte = 0;
  const ssize_t got = ::recv(connection, &byte, 1, MSG_DONTWAIT);
  if (got > 0) ::_exit(0);
  return got == 0 || errno != EAGAIN;
}

// Returns whether a process has ended within `ms`; false without a descriptor.
bool ended(int pidfd, int ms) {
  pollfd polled{pidfd, POLLIN, 0};
  return pidfd >= 0 && ::poll(&polled, 1, ms) > 0;
}

// Blocks until a rank ends, and returns its index. The rank that died first is found, and not a
// rank that the launcher killed afterwards: epoll reports descriptors in the order in which they
// became ready.
std::size_t first_death(const std::vector<Guarded>& guarded) {
  const int set = ::epoll_create1(0);
  for (std::size_t i = 0; i < guarded.size(); ++i) {
    for (const int fd : {guarded[i].connection, guarded[i].pidfd}) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = 2 * i + (fd == guarded[i].pidfd);
      if (fd >= 0) ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    }
  }
  while (true) {
    epoll_event event{};
    const int got = ::epoll_wait(set, &event, 1, -1);
    if (got < 0 && errno != EINTR) ::_exit(0);
    if (got < 1) continue;
    const std::size_t index = event.data.u64 / 2;
    if (event.data.u64 % 2 == 1 || closed(guarded[index].connection)) return index;
  }
}

std::time_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

// Gives the launcher and the ranks `grace` seconds to end the job; then kills the remaining ranks
// and runs `command`.
void end_job(const std::vector<Guarded>& guarded, std::size_t dead, const DeathAction& action, char* const* command) {
  std::time_t deadline = now() + action.grace;
  for (const Guarded& process : guarded) {
    while (process.pidfd >= 0 && now() < deadline && !ended(process.pidfd, 1000)) {
    }
  }
  if (!ended(guarded[dead].pidfd, 0)) return;  // the process has run exec() instead
  deadline = std::min(deadline, now() + kAlone);
  while (*command != nullptr && now() < deadline) ::poll(nullptr, 0, 1000);
  for (const Guarded& process : guarded) {
    if (process.pidfd >= 0) ::syscall(SYS_pidfd_send_signal, process.pidfd, SIGKILL, nullptr, 0);
  }
  if (*command == nullptr) return;
  for (int fd = 0; fd < 3; ++fd) {
    ::close(fd);
    if (::open("/dev/null", O_RDWR) < 0) return;  // open() returns the lowest free number: fd
  }
  ::execve(*command, command, environ);
}

[[noreturn]] void guard(const std::vector<Guarded>& guarded, const DeathAction& action, const std::vector<int>& kept,
                        char* const* command) {
  ::setsid();  // leaves the process group that launchers end
  // Launchers signal this process too. Blocked signals wait until the death is reported.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);
  sigset_t signals;
  ::sigfillset(&signals);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  ::prctl(PR_SET_NAME, "ringcomm-guard");
  close_others(kept);
  const std::size_t dead = first_death(guarded);
  ended(action.after, kAfterMs);
  const std::string& line = guarded[dead].line;
  const ssize_t written = ::write(action.to, line.data(), line.size());
  static_cast<void>(written);  // without a reader the death stays unreported
  ::sigemptyset(&signals);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  if (action.grace >= 0) end_job(guarded, dead, action, command);
  ::_exit(0);  // later deaths are consequences
}

}  // namespace

int start_guardian(const std::vector<Guarded>& guarded, const DeathAction& action) {
  // All memory is allocated before the fork.
  std::vector<int> kept{action.to};
  if (action.after >= 0) kept.push_back(action.after);
  for (const Guarded& process : guarded) {
    for (const int fd : {process.pidfd, process.connection}) {
      if (fd >= 0) kept.push_back(fd);
    }
  }
  std::sort(kept.begin(), kept.end());
  std::vector<std::string> words = action.command;
  std::vector<char*> command;
  for (std::string& word : words) command.push_back(word.data());
  command.push_back(nullptr);
  // Not fork(): atfork handlers of libraries must not run here.
  const long pid = ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) guard(guarded, action, kept, command.data());
  if (pid < 0) throw invalid("cannot start the process that watches the ranks of this host: ", std::strerror(errno));
  return static_cast<int>(pid);
}

}  // namespace ringcomm
