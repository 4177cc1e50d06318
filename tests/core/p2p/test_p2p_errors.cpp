// Tests messages that do not fit, are cancelled, or have no counterpart: the errors of each rank.
#include <functional>
#include <string>

#include "message_ranks.hpp"
#include "p2p/pair_ring.hpp"
#include "shm/doorbell.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

void truncation_is_an_error_of_the_receiver(World& world) {
  on_world(world, [&](int rank, PointToPoint& ranks, std::barrier<>&) {
    for (const std::size_t nbytes : {8u, 5'000u, 100'000u}) {
      if (rank == 0) run_send(ranks, 1, 4, Bytes(nbytes));
      if (rank == 1) {
        Bytes bytes(nbytes - 1);
        const Error error = error_of([&] { run_receive(ranks, 0, kAnyTag, bytes); });
        CHECK(error.kind() == ErrorKind::mismatch && error.ranks() == std::vector<int>{0});
        CHECK(std::string(error.what()).find("truncated") != std::string::npos);
      }
      if (rank == 0) run_send(ranks, 1, 5, Bytes(nbytes));  // the next message is fine
      Bytes bytes(nbytes + 5);
      if (rank == 1) CHECK(run_receive(ranks, 0, 5, bytes).nbytes == nbytes);
    }
  });
}

void cancelled_receives_take_nothing(World& world) {
  on_world(world, [&](int rank, PointToPoint& ranks, std::barrier<>& barrier) {
    Bytes bytes(4), other(4);
    if (rank == 1) {
      const auto receive = std::make_shared<Request>(Request::Kind::receive, 0, 1, other.data(), 4);
      ranks.start(receive);
      CHECK(ranks.cancel(*receive) && receive->done() && receive->cancelled);
      CHECK(!ranks.cancel(*receive));
    }
    barrier.arrive_and_wait();
    if (rank == 0) run_send(ranks, 1, 1, Bytes(4, std::byte{9}));
    if (rank == 1) {
      run_receive(ranks, 0, 1, bytes);
      CHECK(bytes[3] == std::byte{9} && other[3] == std::byte{0});
    }
  });
}

void who_leaves_is_waited_for_by_nobody(World& world) {
  on_world(world, [&](int rank, PointToPoint& ranks, std::barrier<>&) {
    Bytes bytes(8);
    if (rank == 0) {
      run_send(ranks, 1, 1, Bytes(8, std::byte{5}));
      ranks.leave();
      return;
    }
    if (rank != 1) return;
    const Error error = error_of([&] { run_receive(ranks, 0, 2, bytes); });
    CHECK(error.kind() == ErrorKind::left && error.ranks() == std::vector<int>{0});
    CHECK(run_receive(ranks, 0, 1, bytes).nbytes == 8 && bytes[0] == std::byte{5});  // it had arrived
    CHECK(error_of([&] { run_send(ranks, 0, 1, bytes); }).kind() == ErrorKind::left);
    CHECK(error_of([&] { ranks.probe(0, 1, nullptr); }).kind() == ErrorKind::left);
  });
}

void who_fails_is_waited_for_by_nobody(World& world) {
  on_world(world, [&](int rank, PointToPoint& ranks, std::barrier<>&) {
    if (!world.neighbours(0, 1) || rank > 1) return;
    Bytes bytes(8);
    if (rank == 0) mark_failed(*world.node(0), 0);
    if (rank == 1) CHECK(error_of([&] { run_receive(ranks, kAnySource, 2, bytes); }).kind() == ErrorKind::peer_lost);
  });
}

void what_is_left_at_the_end_is_told(World& world) {
  on_world(world, [&](int rank, PointToPoint& ranks, std::barrier<>& barrier) {
    Bytes bytes(100'000);
    const auto send = std::make_shared<Request>(Request::Kind::send, 1, 6, bytes.data(), bytes.size());
    if (rank == 0) {
      run_send(ranks, 1, 3, Bytes(40));
      ranks.start(send);
    }
    barrier.arrive_and_wait();
    const std::size_t lines = ranks.close(world.sent_to(rank, ranks, barrier)).size();
    // over a transport the receiver accepts the messages that it drops, so the sender is done with
    // them
    const bool neighbours = world.neighbours(0, 1);
    CHECK(lines == (rank == 1 ? 2u : rank == 0 && neighbours ? 1u : 0u));
    if (rank == 0) CHECK(send->done() && send->error.has_value() == neighbours);
    if (rank == 0 && neighbours) CHECK(send->error->kind() == ErrorKind::shut_down);
  });
}

thread_local std::function<void()> before_interruption;

// Cancels a long send that the peer knows of, also while the peer's ring is full, which delays the
// notice. Other messages arrive, and a receive that has the message ends.
void interrupted_sends_are_taken_back(World& like) {
  const bool neighbours = like.neighbours(0, 1);
  for (const int others : {0, static_cast<int>(PairRing::kCells) - 1}) {
    for (const bool wanted : {false, true}) {
      World world = like.fresh();
      on_world(world, [&](int rank, PointToPoint& ranks, std::barrier<>& barrier) {
        Bytes big(3'000'000), small(8);
        if (rank == 0) {
          Request send(Request::Kind::send, 1, 6, big.data(), big.size());
          before_interruption = [&] {
            for (int i = 0; i < others; ++i) run_send(ranks, 1, 7, small);
          };
          const auto interrupted = [] {
            before_interruption();
            return true;
          };
          CHECK(error_of([&] { ranks.run(send, interrupted); }).kind() == ErrorKind::interrupted);
          CHECK(!send.error && (send.successor != nullptr) == (others > 0 || !neighbours));
          CHECK(!send.successor || send.successor->reported);  // so left_over() does not name it
          barrier.arrive_and_wait();
          while (send.successor && !send.successor->done()) ranks.progress();
          return run_send(ranks, 1, 8, small);
        }
        barrier.arrive_and_wait();
        if (rank != 1) return;
        const auto receive = std::make_shared<Request>(Request::Kind::receive, 0, 6, big.data(), big.size());
        if (wanted) ranks.start(receive);
        for (int i = 0; i < others; ++i) run_receive(ranks, 0, 7, small);
        run_receive(ranks, 0, 8, small);
        CHECK(!ranks.iprobe(0, kAnyTag) && receive->done() == wanted);
        if (receive->error) CHECK(receive->error->kind() == ErrorKind::left);
      });
    }
  }
}

void nonsense_is_refused(World& world) {
  on_world(world, [&](int, PointToPoint& ranks, std::barrier<>&) {
    Bytes bytes(1);
    const auto refuses = [&](auto act) { CHECK(error_of(act).kind() == ErrorKind::invalid); };
    refuses([&] { run_send(ranks, ranks.size(), 0, bytes); });
    refuses([&] { run_send(ranks, kAnySource, 0, bytes); });
    refuses([&] { run_send(ranks, 0, kAnyTag, bytes); });
    refuses([&] { run_receive(ranks, -1, 0, bytes); });
    run_send(ranks, kProcNull, 0, bytes);
    CHECK(run_receive(ranks, kProcNull, 0, bytes).source == kProcNull);
  });
}

}  // namespace

int main() {
  for (const auto& [hosts, shared] : kWorlds) {
    for (const auto test :
         {nonsense_is_refused, truncation_is_an_error_of_the_receiver, cancelled_receives_take_nothing,
          who_leaves_is_waited_for_by_nobody, who_fails_is_waited_for_by_nobody, what_is_left_at_the_end_is_told,
          interrupted_sends_are_taken_back}) {
      World world(hosts, shared);
      if (world.size() > 1 || test == nonsense_is_refused) test(world);
    }
  }
  return 0;
}
