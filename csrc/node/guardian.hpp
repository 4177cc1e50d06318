// Says which rank of this host died. A process of its own: MPICH's launcher ends the other ranks, whole process groups
// of them, within a fraction of a millisecond and reads no more of what they wrote.
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

// Forks the guardian and returns its process id; throws Error(invalid) if there can be none. It writes the lines of the
// first processes that end to descriptor `to` and ends itself; silently once a byte comes. It holds no other
// descriptor, and runs nothing but system calls, for the fork is of a threaded program.
int start_guardian(const std::vector<Guarded>& guarded, int to);

}  // namespace ringcomm
