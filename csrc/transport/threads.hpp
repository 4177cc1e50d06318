// Provides a transport between threads as ranks of one process, for tests and for use without MPI.
#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace ringcomm {

class ThreadsHub;  // connects `size` endpoints

std::shared_ptr<ThreadsHub> make_threads_hub(int size);
std::unique_ptr<Transport> make_threads_transport(std::shared_ptr<ThreadsHub> hub, int rank);
// Injects a fault, for tests: every later call that involves `rank` fails with Error(peer_lost).
void threads_kill(ThreadsHub& hub, int rank);

}  // namespace ringcomm
