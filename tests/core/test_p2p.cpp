// Messages between ranks that are threads: random programs by every path, against what each message must be.
#include "p2p/point_to_point.hpp"

#include <algorithm>
#include <barrier>
#include <csignal>
#include <mutex>
#include <numeric>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "check.hpp"
#include "node/doorbell.hpp"
#include "processes.hpp"
#include "random.hpp"
#include "transport/threads.hpp"

using namespace ringcomm;

namespace {

using Bytes = std::vector<std::byte>;

std::byte pattern(int source, int tag, std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(static_cast<std::uint64_t>(source) * 31 + static_cast<std::uint64_t>(tag) * 7 +
                                number * 13 + at);
}

// Ranks of one communicator on hosts that share memory, or not.
class World {
 public:
  World(std::vector<int> host_of, bool shared) : host_of_(std::move(host_of)), shared_(shared) {
    hub = make_threads_hub(size());
    const int hosts = *std::max_element(host_of_.begin(), host_of_.end()) + 1;
    for (int host = 0; host < hosts && shared_; ++host) nodes_.push_back(Node::for_threads(on(host)));
  }
  int size() const { return static_cast<int>(host_of_.size()); }
  std::unique_ptr<PointToPoint> make(int rank, bool reads_peers = true) {
    PointToPoint::Group group;
    group.reads_peers = reads_peers;
    group.first_tag = 5;
    group.rank = rank;
    group.size = size();
    const int host = host_of_[static_cast<std::size_t>(rank)];
    if (shared_) {
      for (int other = 0; other < size(); ++other) {
        if (host_of_[static_cast<std::size_t>(other)] != host) continue;
        if (other == rank) group.node = node(rank);
        group.on_host.push_back(other);
      }
    }
    if (!shared_ || on(host) < size()) group.transport = make_threads_transport(hub, rank);
    return std::make_unique<PointToPoint>(std::move(group));
  }
  std::shared_ptr<Node> node(int rank) const {  // null: the rank shares memory with nobody
    if (!shared_) return nullptr;
    const auto host = static_cast<std::size_t>(host_of_[static_cast<std::size_t>(rank)]);
    return nodes_[host][static_cast<std::size_t>(std::count(host_of_.begin(), host_of_.begin() + rank, host))];
  }
  bool neighbours(int a, int b) const {
    return shared_ && host_of_[static_cast<std::size_t>(a)] == host_of_[static_cast<std::size_t>(b)];
  }
  // What was sent to `rank` over transports. Collective: all have sent what they will.
  std::vector<std::uint64_t> sent_to(int rank, const PointToPoint& ranks, std::barrier<>& barrier) {
    const std::vector<std::uint64_t> mine = ranks.sent();
    {
      const std::lock_guard lock(mutex_);
      sent_.resize(host_of_.size());
      sent_[static_cast<std::size_t>(rank)] = mine;
    }
    barrier.arrive_and_wait();
    std::vector<std::uint64_t> here;
    for (const auto& one : sent_) {
      if (!one.empty()) here.push_back(one[static_cast<std::size_t>(rank)]);
    }
    return here;
  }
  std::shared_ptr<ThreadsHub> hub;

 private:
  int on(int host) const { return static_cast<int>(std::count(host_of_.begin(), host_of_.end(), host)); }
  std::vector<int> host_of_;
  bool shared_;
  std::vector<std::vector<std::shared_ptr<Node>>> nodes_;
  std::mutex mutex_;
  std::vector<std::vector<std::uint64_t>> sent_;  // by sender
};

// Memory of one rank, in its arena if there is one.
class Array {
 public:
  Array(std::shared_ptr<Node> node, std::size_t nbytes)
      : node_(std::move(node)), own_(node_ ? 0 : nbytes), size_(nbytes),
        offset_(node_ ? node_->allocate(std::max<std::size_t>(nbytes, 1)) : 0) {}
  Array(const Array&) = delete;
  ~Array() {
    if (node_) node_->free(offset_);
  }
  std::byte* data() { return node_ ? node_->at(node_->rank(), offset_) : own_.data(); }
  std::size_t size() const { return size_; }
  std::byte& operator[](std::size_t i) { return data()[i]; }

 private:
  const std::shared_ptr<Node> node_;
  Bytes own_;
  const std::size_t size_;
  const std::uint64_t offset_;
};

const std::vector<std::pair<std::vector<int>, bool>> kWorlds{
    {{0}, true},           {{0, 0}, true},    {{0, 0, 0}, true},       {{0, 0, 0, 0, 0}, true}, {{0, 0}, false},
    {{0, 0, 0, 0}, false}, {{0, 0, 1}, true}, {{0, 1, 0, 1, 1}, true}, {{0, 1, 2}, true}};

std::size_t some_size(Random& random) {
  constexpr std::size_t kSizes[]{0, 1, 4, 200, 216, 217, 4096, 16384, 16385, 65536, 65537, 300'000, 2'500'000};
  return kSizes[below(random, kSanitized ? 11 : 13)];
}

void run_send(PointToPoint& ranks, int peer, int tag, const Bytes& bytes) {
  Request send(Request::Kind::send, peer, tag, const_cast<std::byte*>(bytes.data()), bytes.size());
  ranks.run(send, nullptr);
}

template <class Memory>
Envelope run_receive(PointToPoint& ranks, int peer, int tag, Memory& bytes) {
  Request receive(Request::Kind::receive, peer, tag, bytes.data(), bytes.size());
  ranks.run(receive, nullptr);
  return receive.status;
}

// Every rank sends everybody messages in the background, tags at random, and receives as many, by tag, by source, or
// whatever comes: of each (source, tag) in the order sent.
void random_program(World& world, std::uint64_t seed) {
  constexpr int kTags = 3, kEach = 12;
  const int size = world.size();
  std::barrier<> barrier(size);
  on_ranks(size, [&](int rank) {
    const auto ranks = world.make(rank, seed % 2 == 0);
    barrier.arrive_and_wait();
    const auto plan = [&](int from, int to) {  // tags and sizes of all messages of a pair
      Random random(seed * 1000 + static_cast<std::uint64_t>(from * size + to));
      std::vector<std::pair<int, std::size_t>> all;
      for (int i = 0; i < kEach; ++i) all.emplace_back(static_cast<int>(below(random, kTags)), some_size(random));
      return all;
    };
    Random random(seed + static_cast<std::uint64_t>(rank) * 77);
    std::vector<std::shared_ptr<Request>> requests;
    std::vector<std::unique_ptr<Array>> kept;
    const auto some_memory = [&] { return below(random, 3) == 0 ? world.node(rank) : nullptr; };
    std::vector<std::vector<std::pair<int, std::size_t>>> expected;  // by source
    for (int from = 0; from < size; ++from) expected.push_back(plan(from, rank));
    const auto send_one = [&](int to, int number) {
      const auto [tag, nbytes] = plan(rank, to)[static_cast<std::size_t>(number)];
      Array& bytes = *kept.emplace_back(std::make_unique<Array>(some_memory(), nbytes));
      for (std::size_t i = 0; i < nbytes; ++i) {
        bytes[i] = pattern(rank, tag, static_cast<std::uint64_t>(number), i);
      }
      requests.push_back(std::make_shared<Request>(Request::Kind::send, to, tag, bytes.data(), nbytes));
      ranks->start(requests.back());
    };
    std::vector<std::vector<bool>> got(expected.size(), std::vector<bool>(kEach));
    const auto check = [&](const Envelope& status, Array& bytes) {
      auto& plan_of = expected[static_cast<std::size_t>(status.source)];
      auto& seen = got[static_cast<std::size_t>(status.source)];
      std::size_t number = 0;
      while (seen[number] || plan_of[number].first != status.tag) ++number;
      seen[number] = true;
      CHECK(status.nbytes == plan_of[number].second);
      for (std::size_t i = 0; i < status.nbytes; ++i) CHECK(bytes[i] == pattern(status.source, status.tag, number, i));
    };
    int to_send = kEach * size, to_receive = kEach * size;
    while (to_send > 0 || to_receive > 0) {
      if (to_send > 0 && (to_receive == 0 || below(random, 2) == 0)) {
        --to_send;
        send_one(to_send % size, kEach - 1 - to_send / size);
        continue;
      }
      --to_receive;
      std::optional<Envelope> seen;
      if (to_send > 0) {
        // only what is there: others may be as far behind
        seen = ranks->iprobe(kAnySource, kAnyTag);
        if (!seen) {
          ++to_receive;
          ranks->progress();
          std::this_thread::yield();
          continue;
        }
      } else if (below(random, 2) == 0) {
        seen = ranks->probe(kAnySource, kAnyTag, nullptr);
      }
      Array bytes(some_memory(), 2'500'000);
      const Envelope status =
          seen ? run_receive(*ranks, seen->source, seen->tag, bytes) : run_receive(*ranks, kAnySource, kAnyTag, bytes);
      if (seen) CHECK(status.nbytes == seen->nbytes && status.tag == seen->tag && status.source == seen->source);
      check(status, bytes);
    }
    for (const auto& request : requests) {
      CHECK(ranks->wait(*request, kForEver, nullptr));
      CHECK(!request->error);
    }
    barrier.arrive_and_wait();
    CHECK(ranks->close(world.sent_to(rank, *ranks, barrier)).empty());
    barrier.arrive_and_wait();
  });
}

template <class Body>
void on_world(World& world, Body body) {
  std::barrier<> barrier(world.size());
  on_ranks(world.size(), [&](int rank) {
    const auto ranks = world.make(rank);
    barrier.arrive_and_wait();
    body(rank, *ranks, barrier);
    barrier.arrive_and_wait();
  });
}

template <class Act>
Error error_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  CHECK(!"nothing was thrown");
  std::abort();
}

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
      if (rank == 0) run_send(ranks, 1, 5, Bytes(nbytes));  // the next one is fine
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
      return ranks.leave();
    }
    if (rank != 1) return;
    const Error error = error_of([&] { run_receive(ranks, 0, 2, bytes); });
    CHECK(error.kind() == ErrorKind::left && error.ranks() == std::vector<int>{0});
    CHECK(run_receive(ranks, 0, 1, bytes).nbytes == 8 && bytes[0] == std::byte{5});  // it had come
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
    // over a transport the receiver takes what it drops, so the sender is done with it
    const bool neighbours = world.neighbours(0, 1);
    CHECK(lines == (rank == 1 ? 2u : rank == 0 && neighbours ? 1u : 0u));
    if (rank == 0) CHECK(send->done() && send->error.has_value() == neighbours);
    if (rank == 0 && neighbours) CHECK(send->error->kind() == ErrorKind::shut_down);
  });
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

// ---- ranks that are processes

PointToPoint::Group of_processes(Node& node, bool reads_peers = true) {
  PointToPoint::Group group;
  group.rank = node.rank();
  group.size = node.size();
  group.node = {std::shared_ptr<Node>(), &node};
  for (int rank = 0; rank < group.size; ++rank) group.on_host.push_back(rank);
  group.reads_peers = reads_peers;
  return group;
}

// Long messages, out of memory that is not shared: read by the receiver, or sent in pieces.
void processes_exchange(bool reads_peers) {
  constexpr std::size_t kLong = 3'000'001;
  testing::Processes processes(3);
  processes.start([&](Node& node) {
    PointToPoint ranks(of_processes(node, reads_peers));
    const int right = (node.rank() + 1) % 3, left = (node.rank() + 2) % 3;
    for (int round = 0; round < 5; ++round) {
      Bytes out(kLong), in(kLong);
      for (std::size_t i = 0; i < kLong; ++i) out[i] = pattern(node.rank(), round, 0, i);
      Request send(Request::Kind::send, right, round, out.data(), kLong);
      Request receive(Request::Kind::receive, left, round, in.data(), kLong);
      ranks.run(send, receive, nullptr);
      for (std::size_t i = 0; i < kLong; ++i) CHECK(in[i] == pattern(left, round, 0, i));
    }
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.end_of(rank) == 0);
}

// Whoever waits for a rank that is killed hears of it: in a receive of what never comes or has come in part, in a
// send that nobody receives, and waiting for anybody.
void the_dead_are_waited_for_by_nobody() {
  constexpr std::size_t kLong = 3'000'000;
  testing::Processes processes(5);
  processes.start([&](Node& node) {
    node.watch(processes.pidfds(node.rank()));
    PointToPoint ranks(of_processes(node, false));
    Bytes bytes(kLong);
    const auto until_somebody_sends = [&](int source) { run_receive(ranks, source, 1, bytes); };
    if (node.rank() == 4) {
      until_somebody_sends(0);  // so that all have begun
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
    CHECK(node.rank() == 3 || error.ranks() == std::vector<int>{4});  // the others may have ended before 3 looks
    CHECK(now_ns() - begun < 20'000'000'000);
    CHECK(error_of([&] { run_send(ranks, 4, 1, bytes); }).kind() == ErrorKind::peer_lost);
  });
  CHECK(processes.end_of(4) == 128 + SIGKILL);
  for (int rank = 0; rank < 4; ++rank) CHECK(processes.end_of(rank) == 0);
}

}  // namespace

int main() {
  if (!kSanitized) {  // before there are threads
    processes_exchange(true);
    processes_exchange(false);
    the_dead_are_waited_for_by_nobody();
  }
  for (const auto& [hosts, shared] : kWorlds) {
    for (std::uint64_t seed = 0; seed < (kSanitized ? 1 : 4); ++seed) {
      World world(hosts, shared);
      random_program(world, seed);
    }
    for (const auto test :
         {nonsense_is_refused, truncation_is_an_error_of_the_receiver, cancelled_receives_take_nothing,
          who_leaves_is_waited_for_by_nobody, who_fails_is_waited_for_by_nobody, what_is_left_at_the_end_is_told}) {
      World world(hosts, shared);
      if (world.size() > 1 || test == nonsense_is_refused) test(world);
    }
  }
  return 0;
}
