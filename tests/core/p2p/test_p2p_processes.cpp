// Tests messages between processes of one host: from private memory, and to ranks that are killed.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <new>
#include <thread>

#include "base/clock.hpp"
#include "message_ranks.hpp"
#include "processes.hpp"
#include "shm/peer_memory.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

PointToPoint::Group of_processes(Node& node, bool reads_peers = true) {
  PointToPoint::Group group;
  group.rank = node.rank();
  group.size = node.size();
  group.node = {std::shared_ptr<Node>(), &node};
  for (int rank = 0; rank < group.size; ++rank) group.on_host.push_back(rank);
  group.reads_peers = reads_peers;
  return group;
}

// Returns whether processes of this process's user may read each other's memory here.
bool can_read() {
  const PeerMemory memory;
  const MemoryCard card = memory.card();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(PeerMemory::readable(card) ? 0 : 1);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status) == 0;
}

// Exchanges long messages from private memory, enough to try both paths: the receiver reads them,
// or the sender sends pieces, as if the arrays were misaligned. `apart`: the misalignment in bytes.
void processes_exchange(bool reads_peers, std::size_t apart = 0) {
  constexpr std::size_t kLong = 3'000'001;
  testing::Processes processes(3);
  processes.start([&](Node& node) {
    PointToPoint ranks(of_processes(node, reads_peers));
    const int right = (node.rank() + 1) % 3, left = (node.rank() + 2) % 3;
    for (int round = 0; round < 14; ++round) {
      Bytes out(kLong), in(apart + kLong);
      for (std::size_t i = 0; i < kLong; ++i) out[i] = pattern(node.rank(), round, 0, i);
      Request send(Request::Kind::send, right, round, out.data(), kLong);
      Request receive(Request::Kind::receive, left, round, in.data() + apart, kLong);
      ranks.run(send, receive, nullptr);
      for (std::size_t i = 0; i < kLong; ++i) CHECK(in[apart + i] == pattern(left, round, 0, i));
    }
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.end_of(rank) == 0);
}

// Checks that many long messages arrive while the sender, without a worker, computes.
void who_computes_is_read() {
  constexpr int kMessages = 40;
  void* const memory = ::mmap(nullptr, 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* const arrived = ::new (memory) std::atomic<int>(0);
  testing::Processes processes(2);
  processes.start([&](Node& node) {
    PointToPoint::Group group = of_processes(node);
    group.attended = false;
    PointToPoint ranks(std::move(group));
    Bytes bytes(100'000);
    for (int number = 1; number <= kMessages; ++number) {
      if (node.rank() == 1) {
        run_receive(ranks, 0, 0, bytes);
        *arrived = number;
        continue;
      }
      const auto send = std::make_shared<Request>(Request::Kind::send, 1, 0, bytes.data(), bytes.size());
      ranks.start(send);
      while (*arrived < number) std::this_thread::yield();
      while (!send->done()) ranks.progress();
    }
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.end_of(rank) == 0);
  ::munmap(memory, 64);
}

// Waits for a rank that is killed: in a receive that gets nothing or a part, in a send without a
// receive, and in a receive from any rank. Every wait ends with an error.
void the_dead_are_waited_for_by_nobody() {
  constexpr std::size_t kLong = 3'000'000;
  testing::Processes processes(5);
  processes.start([&](Node& node) {
    node.watch(processes.pidfds(node.rank()));
    PointToPoint ranks(of_processes(node, false));
    Bytes bytes(kLong);
    const auto until_somebody_sends = [&](int source) { run_receive(ranks, source, 1, bytes); };
    if (node.rank() == 4) {
      until_somebody_sends(0);  // so that all ranks have begun
      Request partly(Request::Kind::send, 1, 2, bytes.data(), kLong);
      ranks.start(partly);
      for (const std::int64_t end = now_ns() + 200'000'000; now_ns() < end;) ranks.progress();
      ::kill(::getpid(), SIGKILL);
    }
    if (node.rank() == 0) run_send(ranks, 4, 1, Bytes(1));
    const std::int64_t begun = now_ns();
    const Error error = error_of([&] {
      switch (node.rank()) {
        case 0:
          return until_somebody_sends(4);
        case 1:
          until_somebody_sends(4);
          return;
        case 2:
          return run_send(ranks, 4, 1, bytes);
        default:
          return until_somebody_sends(kAnySource);
      }
    });
    CHECK(error.kind() == ErrorKind::peer_lost);
    // the other ranks may have ended before rank 3 looks
    CHECK(node.rank() == 3 || error.ranks() == std::vector<int>{4});
    CHECK(now_ns() - begun < 20'000'000'000);
    CHECK(error_of([&] { run_send(ranks, 4, 1, bytes); }).kind() == ErrorKind::peer_lost);
  });
  CHECK(processes.end_of(4) == 128 + SIGKILL);
  for (int rank = 0; rank < 4; ++rank) CHECK(processes.end_of(rank) == 0);
}

}  // namespace

int main() {
  if (kSanitized) return 0;
  processes_exchange(true);
  processes_exchange(true, 8);
  processes_exchange(false);
  if (can_read()) who_computes_is_read();
  the_dead_are_waited_for_by_nobody();
  return 0;
}
