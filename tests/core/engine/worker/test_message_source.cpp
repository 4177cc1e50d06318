// Tests messages in the background: the worker or a waiting caller moves each of them.
#include "engine/worker/message_source.hpp"

#include <barrier>
#include <chrono>
#include <thread>

#include "base/clock.hpp"
#include "message_ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kSizes[] = {0, 100, 10'000, 300'000, 9'000'000};
constexpr std::int64_t kSecond = 1'000'000'000;

// A rank with its own worker.
class Rank {
 public:
  Rank(std::unique_ptr<PointToPoint> ranks, bool own_core)
      : worker_(std::make_shared<Worker>(true)),
        source_(std::make_shared<MessageSource>(worker_, std::move(ranks), own_core)) {
    worker_->add(source_);
  }
  ~Rank() { worker_->remove(source_); }
  std::shared_ptr<Request> send(int peer, int tag, Array& array) {
    return start(Request::Kind::send, peer, tag, array);
  }
  std::shared_ptr<Request> receive(int peer, int tag, Array& array) {
    return start(Request::Kind::receive, peer, tag, array);
  }
  bool wait(const Request& request, std::int64_t ns) { return source_->wait(request, now_ns() + ns, nullptr); }

 private:
  std::shared_ptr<Request> start(Request::Kind kind, int peer, int tag, Array& array) {
    auto request = std::make_shared<Request>(kind, peer, tag, array.data(), array.size());
    source_->start(request);
    return request;
  }
  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<MessageSource> source_;
};

// Polls without a wait, because a wait would move the message.
void becomes_done(const Request& request) {
  const std::int64_t begin = now_ns();
  while (!request.done()) {
    CHECK(now_ns() - begin < 20 * kSecond);
    std::this_thread::sleep_for(20us);
  }
  CHECK(!request.error);
}

// Sends from each rank to the next one of a ring, with or without shared memory.
void in_a_ring(World& world, bool own_core) {
  std::barrier<> barrier(world.size());
  on_ranks(world.size(), [&](int me) {
    const int next = (me + 1) % world.size(), before = (me + world.size() - 1) % world.size();
    Rank rank(world.make(me), own_core);
    barrier.arrive_and_wait();
    for (const bool shared : {false, true}) {
      for (const std::size_t nbytes : kSizes) {
        const auto node = shared ? world.node(me) : nullptr;
        Array out(node, nbytes), in(node, nbytes), out_too(node, nbytes), in_too(node, nbytes), late(node, nbytes);
        for (std::size_t i = 0; i < nbytes; ++i) {
          out[i] = pattern(me, 1, nbytes, i);
          out_too[i] = pattern(me, 2, nbytes, i);
        }
        const auto is_right = [&](Array& array, int tag) {
          for (std::size_t i = 0; i < nbytes; i += 997) CHECK(array[i] == pattern(before, tag, nbytes, i));
        };
        // No caller waits: the workers move all messages.
        const auto first = rank.receive(before, 1, in), sent = rank.send(next, 1, out);
        becomes_done(*first);
        becomes_done(*sent);
        is_right(in, 1);
        // A wait that times out leaves the rest to the workers.
        const auto in_vain = rank.receive(before, 9, late);
        const auto second = rank.receive(before, 2, in_too);
        if (me == 0) CHECK(!rank.wait(*in_vain, kSecond / 1000));
        barrier.arrive_and_wait();
        const auto sent_too = rank.send(next, 2, out_too);
        if (me != 0) CHECK(rank.wait(*second, 60 * kSecond));
        becomes_done(*second);
        becomes_done(*sent_too);
        is_right(in_too, 2);
        const auto at_last = rank.send(next, 9, out);
        becomes_done(*in_vain);
        becomes_done(*at_last);
        barrier.arrive_and_wait();
      }
    }
  });
}

// Runs two ranks of a host whose workers share their callers' cores.
template <class Body>
void on_two(Body body) {
  World world({0, 0}, true);
  std::barrier<> barrier(2);
  on_ranks(2, [&](int me) {
    Rank rank(world.make(me), false);
    Array bytes(nullptr, 300'000);
    barrier.arrive_and_wait();
    body(me, rank, bytes, barrier);
    barrier.arrive_and_wait();
  });
}

// Waits for a message that does not arrive; meanwhile the waiting caller moves all other messages.
void who_waits_moves_everything() {
  on_two([](int me, Rank& rank, Array& bytes, std::barrier<>&) {
    Array nothing(nullptr, 8);
    if (me == 1) {
      becomes_done(*rank.send(0, 1, bytes));
      const auto last = rank.send(0, 2, nothing);
      CHECK(rank.wait(*last, 60 * kSecond));
    } else {
      const auto in_vain = rank.receive(1, 2, nothing), wanted = rank.receive(1, 1, bytes);
      std::thread waiter([&] { CHECK(rank.wait(*in_vain, 60 * kSecond)); });
      becomes_done(*wanted);
      waiter.join();
    }
  });
}

// Checks that the worker moves messages that arrive after a wait.
void what_a_wait_leaves() {
  on_two([](int me, Rank& rank, Array& bytes, std::barrier<>& barrier) {
    const auto wanted = me == 0 ? rank.receive(1, 1, bytes) : nullptr;
    if (wanted) CHECK(!rank.wait(*wanted, kSecond / 10));  // meanwhile the worker polls, and finds nothing to do
    barrier.arrive_and_wait();
    becomes_done(wanted ? *wanted : *rank.send(0, 1, bytes));
  });
}

}  // namespace

int main() {
  for (const auto& [host_of, shared] : kWorlds) {
    if (host_of.size() == 1) continue;
    for (const bool own_core : {false, true}) {
      World world(host_of, shared);
      in_a_ring(world, own_core);
    }
  }
  who_waits_moves_everything();
  what_a_wait_leaves();
}
