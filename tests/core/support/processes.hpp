// Ranks as real processes: forked, each with a Node over the same arenas.
#pragma once

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "check.hpp"
#include "shm/node.hpp"

namespace ringcomm::testing {

class Processes {
 public:
  explicit Processes(int size) : pids_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) arenas_.push_back(Node::make_arena());
  }
  ~Processes() {
    for (const int fd : arenas_) ::close(fd);
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Runs body in every process. Call it before this process has threads. `before` runs before the
  // arenas are mapped.
  void start(const std::function<void(Node&)>& body, const std::function<void(int)>& before = {}) {
    const std::size_t nbytes = pids_.size() * sizeof(pid_t);
    int gate[2];
    CHECK(::pipe(gate) == 0);
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      if (const pid_t pid = ::fork(); pid != 0) {
        CHECK(pid > 0);
        pids_[rank] = pid;
        continue;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a failed test leaves no process behind
      ::close(gate[1]);
      CHECK(::read(gate[0], pids_.data(), nbytes) == static_cast<ssize_t>(nbytes));
      if (before) before(static_cast<int>(rank));
      ::_exit(live(static_cast<int>(rank), body));
    }
    for (std::size_t i = 0; i < pids_.size(); ++i) {  // one copy of all pids for each process; small writes are atomic
      CHECK(::write(gate[1], pids_.data(), nbytes) == static_cast<ssize_t>(nbytes));
    }
    ::close(gate[0]);
    ::close(gate[1]);
  }

  // Returns a pidfd per rank, -1 for itself. For children.
  std::vector<int> pidfds(int me) const {
    std::vector<int> fds;
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) {
      fds.push_back(static_cast<int>(rank) == me ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, pids_[rank], 0)));
      CHECK(static_cast<int>(rank) == me || fds.back() >= 0);
    }
    return fds;
  }

  // Returns a rank's exit status, or 128 + the signal as in shells. For the parent.
  int end_of(int rank) {
    int status = 0;
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    CHECK(::waitpid(pid, &status, 0) == pid);
    pid = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  int live(int rank, const std::function<void(Node&)>& body) {
    try {
      Node node(rank, arenas_);
      body(node);
      return 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      return 1;
    }
  }

  std::vector<int> arenas_;
  std::vector<pid_t> pids_;
};

}  // namespace ringcomm::testing
