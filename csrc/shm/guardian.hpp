// Names the rank of this host that died, and ends the job if the launcher does not. The guardian is a separate process
// in a session of its own: launchers end the other ranks, whole process groups of them, within a fraction of a
// millisecond, and read no more of what they wrote.
#pragma once

#include <string>
#include <vector>

namespace ringcomm {

struct Guarded {
  int pidfd;  // readable when the process has ended; -1: none
  // a socket to it: closed some time earlier, when it begins to end; a byte on it silences the guardian
  int connection;
  std::string line;  // what to write at its death
};

// The guardian's action when the first rank has died.
struct DeathAction {
  int to;     // descriptor to write the line to
  int after;  // pidfd of a process whose end is awaited before that, 5 s at most; -1: none
  int grace;  // seconds after which ranks that still run are killed; -1: never
  // Runs after that, found or not: ends ranks on other hosts. Empty: nothing does.
  std::vector<std::string> command;
};

// Forks the guardian and returns its process id; throws Error(invalid) if the system refuses. It writes the line of the
// first process that ends; a byte on any connection ends it silently. It holds no other descriptor, and runs nothing
// but system calls, because it is a fork of a threaded program.
int start_guardian(const std::vector<Guarded>& guarded, const DeathAction& action);

}  // namespace ringcomm
