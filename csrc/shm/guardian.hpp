// The guardian reports which rank of this host died, and ends the job if the launcher does not. It
// is a separate process in its own session, because launchers end process groups of ranks within a
// fraction of a millisecond, and then read no more output of these groups.
#pragma once

#include <string>
#include <vector>

namespace ringcomm {

struct Guarded {
  int pidfd;  // readable when the process has ended; -1: none
  // Socket to the rank, which is closed when the rank's process begins to end. If the rank sends a
  // byte, the guardian ends silently.
  int connection;
  std::string line;  // printed at its death
};

// The guardian's action when the first rank has died.
struct DeathAction {
  int to;     // descriptor to write the line to
  int after;  // pidfd of a process that must end before the guardian writes, 5 s at most; -1: none
  int grace;  // seconds after which ranks that still run are killed; -1: never
  // Command that is run after the grace period, even if all ranks of this host have ended. It ends
  // the ranks on other hosts. Empty: none.
  std::vector<std::string> command;
};

// Forks the guardian and returns its process id; throws Error(invalid) if the system refuses. The
// guardian writes the line of the first process that ends; a byte on any connection ends the
// guardian silently. It keeps no other descriptors open. It makes only system calls, because it is
// a fork of a multithreaded program.
int start_guardian(const std::vector<Guarded>& guarded, const DeathAction& action);

}  // namespace ringcomm
