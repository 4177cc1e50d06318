// The guardian reports which rank of this host died, and ends the job if the launcher does not. It
// is a separate process in its own session. Launchers end process groups of ranks within a fraction
// of a millisecond, and then read no more of their output.
#pragma once

#include <string>
#include <vector>

namespace ringcomm {

struct Guarded {
  int pidfd;  // readable when the process has ended; -1: none
  // Socket to the rank: closed when its process begins to end. A byte on it silences the guardian.
  int connection;
  std::string line;  // printed at its death
};

// The guardian's action when the first rank has died.
struct DeathAction {
  int to;     // descriptor to write the line to
  int after;  // pidfd of a process to wait for before that, 5 s at most; -1: none
  int grace;  // seconds after which ranks that still run are killed; -1: never
  // Command to run after that, even if no rank still ran: it ends ranks on other hosts. Empty:
  // none.
  std::vector<std::string> command;
};

// Forks the guardian and returns its process id; throws Error(invalid) if the system refuses. It
// writes the line of the first process that ends; a byte on any connection ends it silently. It
// holds no other descriptor, and runs nothing but system calls, because it is a fork of a threaded
// program.
int start_guardian(const std::vector<Guarded>& guarded, const DeathAction& action);

}  // namespace ringcomm
