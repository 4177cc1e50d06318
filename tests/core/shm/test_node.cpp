// Tests arenas, their heaps, epochs, and the errors about ranks that left or died.
#include "shm/epochs.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "check.hpp"
#include "processes.hpp"

using namespace ringcomm;
using ringcomm::testing::Processes;

template <class Body>
static Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  CHECK(!"an error was expected");
  std::abort();
}

static bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

static std::size_t resident(int fd) {
  struct stat status{};
  CHECK(::fstat(fd, &status) == 0);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

// Checks that allocations never overlap, are aligned, and belong to the arena. Contents survive
// other allocations and releases.
static void heap_against_a_model() {
  const int fd = Node::make_arena();
  Node node(0, {fd}, std::size_t{1} << 30);
  ::close(fd);
  std::mt19937 random(7);
  std::map<std::uint64_t, std::size_t> live;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() < 40 && random() % 2 == 0) {
      const std::size_t nbytes = random() % 8 == 0 ? random() % (3 << 20) : random() % 20000;
      const std::uint64_t offset = node.allocate(nbytes);
      CHECK(offset % 4096 == 0 && offset > 0);
      for (const auto& [other, size] : live) CHECK(offset >= other + size || other >= offset + nbytes);
      if (nbytes > 0) {
        node.at(0, offset)[0] = node.at(0, offset)[nbytes - 1] = static_cast<std::byte>(offset / 4096);
      }
      CHECK(node.offset_of(node.at(0, offset), nbytes) == offset);
      live[offset] = nbytes;
    } else if (!live.empty()) {
      const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      const auto [offset, nbytes] = *victim;
      const std::byte* const data = node.at(0, offset);
      const auto mark = static_cast<std::byte>(offset / 4096);
      CHECK(nbytes == 0 || (data[0] == mark && data[nbytes - 1] == mark));
      node.free(offset);
      live.erase(victim);
    }
  }
  for (const auto& [offset, nbytes] : live) node.free(offset);
  // All blocks are free and merged again: the largest block of an empty heap fits at its start.
  const std::uint64_t first = node.allocate(300 << 20);
  for (const auto& [offset, nbytes] : live) CHECK(first <= offset);
  node.free(first);
  CHECK(error_of([&] { node.free(first); }).kind() == ErrorKind::internal);
}

static void freed_memory_goes_back() {
  const int fd = Node::make_arena();
  Node node(0, {fd});
  const std::size_t empty = resident(fd);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::uint64_t> offsets;
    for (int i = 0; i < 20; ++i) {
      offsets.push_back(node.allocate(16 << 20));
      std::memset(node.at(0, offsets.back()), round + 1, 16 << 20);
    }
    CHECK(resident(fd) >= empty + (std::size_t{320} << 20));
    for (const std::uint64_t offset : offsets) node.free(offset);
    CHECK(resident(fd) <= empty + (std::size_t{64} << 20));
  }
  ::close(fd);
}

static void refusals_are_errors() {
  const int fd = Node::make_arena();
  Node node(0, {fd}, std::size_t{2} << 30);
  const Error too_much = error_of([&] { node.allocate(std::size_t{3} << 30); });
  CHECK(too_much.kind() == ErrorKind::invalid && says(too_much, std::to_string(std::size_t{3} << 30)));
  CHECK(error_of([&] { node.allocate(~std::size_t{0}); }).kind() == ErrorKind::invalid);
  // The system refuses to let the file grow. Earlier allocations still work, and so does the heap
  // after the refusal.
  const std::uint64_t before = node.allocate(4096);
  rlimit limit{};
  CHECK(::getrlimit(RLIMIT_FSIZE, &limit) == 0 && ::signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
  const rlimit little{before + 4096, limit.rlim_max};
  CHECK(::setrlimit(RLIMIT_FSIZE, &little) == 0);
  const Error refused = error_of([&] { node.allocate(123456); });
  CHECK(refused.kind() == ErrorKind::invalid && says(refused, "123456 bytes"));
  CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  node.free(node.allocate(123456));
  node.free(before);
  CHECK(node.allocate(4096) == before);
  ::close(fd);

  const int wide = Node::make_arena();
  Node big(0, {wide}, std::size_t{1} << 46);
  ::close(wide);
  // 32 TiB: more than this machine has
  const Error beyond_memory = error_of([&] { big.allocate(std::size_t{1} << 45); });
  CHECK(beyond_memory.kind() == ErrorKind::invalid && says(beyond_memory, std::to_string(std::size_t{1} << 45)));

  CHECK(error_of([] { Node(0, {-1}); }).kind() == ErrorKind::invalid);
  CHECK(error_of([] { Node(1, {0}); }).kind() == ErrorKind::invalid);
  const int foreign = static_cast<int>(::syscall(SYS_memfd_create, "foreign", 0));
  CHECK(says(error_of([&] { Node(0, {foreign}); }), "not shared memory of ringcomm"));
  CHECK(::ftruncate(foreign, 1 << 20) == 0);
  CHECK(says(error_of([&] { Node(0, {foreign}); }), "not shared memory of ringcomm"));
  ::close(foreign);
}

static void addresses() {
  const auto nodes = Node::for_threads(2);
  const std::uint64_t offset = nodes[0]->allocate(100);
  std::byte* const data = nodes[0]->at(0, offset);
  CHECK(nodes[1]->at(0, offset) == data);
  CHECK(nodes[0]->offset_of(data + 3, 97) == offset + 3);
  CHECK(nodes[1]->offset_of(data, 100) == kPrivate);  // it is in another rank's arena
  int elsewhere = 0;
  CHECK(nodes[0]->offset_of(&elsewhere, sizeof elsewhere) == kPrivate);
  CHECK(nodes[0]->offset_of(nullptr, 0) == kPrivate);
  CHECK(nodes[0]->offset_of(data, ~std::size_t{0}) == kPrivate);
  CHECK(nodes[0]->offset_of(&nodes[0]->mailbox(0, 0), 8) == kPrivate);  // it is not in the heap
}

constexpr std::int64_t kLong = 100'000'000'000, kShort = 20'000'000;  // ns

static void await(Epochs& epochs, std::uint32_t epoch, std::int64_t longest_ns = kLong) {
  Backoff backoff(std::chrono::milliseconds(20), 16, 16);
  while (!epochs.reached(epoch)) {
    if (const auto sleep = backoff.next(); sleep.count() > 0) epochs.sleep(epoch, longest_ns);
  }
}

// Passes a barrier only when all ranks have arrived. Sleeps are longer than the test's time limit,
// so lost wake-ups fail the test.
static void epochs_are_barriers(std::uint32_t start) {
  for (int size = 1; size <= 9; ++size) {
    const auto nodes = Node::for_threads(size);
    for (int rank = 0; rank < size; ++rank) nodes[0]->mailbox(rank, 3).epoch.store(start);
    std::vector<std::atomic<int>> came(static_cast<std::size_t>(size));
    std::vector<std::unique_ptr<Epochs>> epochs;
    for (const auto& node : nodes) epochs.push_back(std::make_unique<Epochs>(*node, 3));
    on_ranks(size, [&](int rank) {
      const auto me = static_cast<std::size_t>(rank);
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int round = 1; round <= 300; ++round) {
        if (random() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        came[me].store(round, std::memory_order_relaxed);
        await(*epochs[me], epochs[me]->publish());
        for (const auto& other : came) {
          const int seen = other.load(std::memory_order_relaxed);
          CHECK(seen == round || seen == round + 1);
        }
      }
    });
    for (int rank = 0; rank < size; ++rank) CHECK(nodes[0]->mailbox(rank, 3).sleepers.load() == 0);
  }
}

static void leaving_is_told() {
  for (const bool failed : {false, true}) {
    const auto nodes = Node::for_threads(3);
    Epochs first(*nodes[0], 0), second(*nodes[1], 0), third(*nodes[2], 0);
    const std::uint32_t epoch = first.publish();
    second.publish();
    CHECK(!first.reached(epoch));
    nodes[1]->mailbox(1, 0).state.store(1);  // it has arrived, then left: no error
    CHECK(!first.reached(epoch));
    nodes[2]->mailbox(2, 0).state.store(failed ? 2 : 1);
    third.wake();
    const Error error = error_of([&] { first.reached(epoch); });
    CHECK(error.kind() == (failed ? ErrorKind::peer_lost : ErrorKind::left));
    CHECK(error.ranks() == std::vector<int>{2} && says(error, "rank 2"));
    third.publish();  // it was only late
    CHECK(first.reached(epoch));
  }
}

// Errors and behind() contain ranks of the group, which differ from local ranks on several hosts.
static void errors_name_ranks_of_the_group() {
  for (const std::uint32_t state : {1U, 2U}) {
    const auto nodes = Node::for_threads(2);
    Epochs first(*nodes[0], 0), second(*nodes[1], 0);
    first.set_group_ranks({3, 7});
    const std::uint32_t epoch = first.publish();
    CHECK(!first.reached(epoch));
    CHECK(first.behind() == std::vector<int>{7});
    nodes[1]->mailbox(1, 0).state.store(state);
    const Error error = error_of([&] { first.reached(epoch); });
    CHECK(error.ranks() == std::vector<int>{7} && says(error, "rank 7"));
  }
}

// Shares memory between real processes over real descriptors: each writes the values it read to its
// arena.
static void processes_share_memory(int size) {
  Processes ranks(size);
  ranks.start([&](Node& node) {
    node.watch(ranks.pidfds(node.rank()));
    Epochs epochs(node, 0);
    const std::uint64_t offset = node.allocate(1 << 20);
    std::memset(node.at(node.rank(), offset), node.rank() + 1, 1 << 20);
    node.mailbox(node.rank(), 1).header[0].offsets.array = offset;
    for (int round = 0; round < 200; ++round) await(epochs, epochs.publish());
    for (int rank = 0; rank < size; ++rank) {
      const std::byte* const data = node.at(rank, node.mailbox(rank, 1).header[0].offsets.array);
      CHECK(data[0] == static_cast<std::byte>(rank + 1) && data[(1 << 20) - 1] == static_cast<std::byte>(rank + 1));
    }
    await(epochs, epochs.publish());
  });
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.end_of(rank) == 0);
}

// Kills one rank with SIGKILL: every other rank gets peer_lost with its number.
static void a_death_is_seen(int size, int victim) {
  Processes ranks(size);
  ranks.start([&](Node& node) {
    const std::vector<int> pidfds = ranks.pidfds(node.rank());
    node.watch(pidfds);
    Epochs epochs(node, 0);
    await(epochs, epochs.publish());
    if (node.rank() == victim) ::raise(SIGKILL);
    const Error error = error_of([&] { await(epochs, epochs.publish(), kShort); });
    CHECK(error.kind() == ErrorKind::peer_lost && error.ranks() == std::vector<int>{victim});
    CHECK(says(error, "rank " + std::to_string(victim)));
    const std::vector<int> dead = node.dead();  // other ranks may have noticed the death earlier, and ended
    CHECK(std::find(dead.begin(), dead.end(), victim) != dead.end());
    CHECK(error_of([&] { node.watch(pidfds); }).kind() == ErrorKind::peer_lost);
  });
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.end_of(rank) == (rank == victim ? 128 + SIGKILL : 0));
}

// Checks that a rank that closes and then ends has left, not died.
static void an_ordered_end_is_no_death() {
  Processes ranks(2);
  ranks.start([&](Node& node) {
    node.watch(ranks.pidfds(node.rank()));
    Epochs epochs(node, 0);
    await(epochs, epochs.publish());
    if (node.rank() == 1) {
      node.mailbox(1, 0).state.store(1);
      return;
    }
    while (node.dead().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(error_of([&] { await(epochs, epochs.publish(), kShort); }).kind() == ErrorKind::left);
  });
  CHECK(ranks.end_of(0) == 0 && ranks.end_of(1) == 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers need address space themselves
// With little address space, ranks map smaller arenas. No rank allocates memory that another rank
// has not mapped.
static void little_address_space() {
  Processes ranks(2);
  ranks.start(
      [&](Node& node) {
        Epochs epochs(node, 0);
        await(epochs, epochs.publish());
        if (node.rank() == 1) {
          const Error error = error_of([&] { node.allocate(std::size_t{2} << 30); });
          CHECK(error.kind() == ErrorKind::invalid);
        }
        const std::uint64_t offset = node.allocate(1 << 20);
        node.at(node.rank(), offset)[(1 << 20) - 1] = std::byte{1};
        await(epochs, epochs.publish());
      },
      [](int rank) {
        const rlimit limit{std::size_t{4} << 30, std::size_t{4} << 30};
        if (rank == 0) CHECK(::setrlimit(RLIMIT_AS, &limit) == 0);
      });
  CHECK(ranks.end_of(0) == 0 && ranks.end_of(1) == 0);
}
#else
static void little_address_space() {}
#endif

// A library's handler, which runs in a child before those of ringcomm. It maps memory at `wanted`
// if that address is free, and elsewhere if not.
static void* wanted = nullptr;
static char* mapped = nullptr;
constexpr std::size_t kMapped = 1 << 16;

static void map_in_child() {
  if (wanted == nullptr) return;
  mapped = static_cast<char*>(::mmap(wanted, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(mapped, 9, kMapped);
}

// In a child, this rank's data is a private copy, and other memory stays as it is, even after the
// node is destroyed. The parent sees nothing of it.
static void a_child_keeps_all_memory() {
  const int fds[] = {Node::make_arena(), Node::make_arena()};
  for (const int owner : {0, 1}) {
    auto node = std::make_unique<Node>(0, std::vector<int>(std::begin(fds), std::end(fds)), std::size_t{1} << 30);
    const std::uint64_t offset = node->allocate(kMapped);
    std::byte* const data = node->at(0, offset);
    data[0] = std::byte{1};
    wanted = node->at(owner, offset);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto intact = [] { return mapped[0] == 9 && mapped[kMapped - 1] == 9; };
      bool good = intact() && data[0] == std::byte{1};
      data[0] = std::byte{2};
      node.reset();
      good = good && intact();
      mapped[0] = 8;
      ::_exit(good ? 0 : 1);
    }
    wanted = nullptr;
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(data[0] == std::byte{1});
  }
  for (const int fd : fds) ::close(fd);
}

int main() {
  CHECK(::pthread_atfork(nullptr, nullptr, map_in_child) == 0);
  processes_share_memory(1);
  processes_share_memory(2);
  processes_share_memory(3);
  processes_share_memory(4);
  for (int size = 2; size <= 4; ++size) a_death_is_seen(size, size == 4 ? 0 : size - 1);
  an_ordered_end_is_no_death();
  little_address_space();
  a_child_keeps_all_memory();
  heap_against_a_model();
  freed_memory_goes_back();
  refusals_are_errors();
  addresses();
  epochs_are_barriers(0);
  epochs_are_barriers(~std::uint32_t{0} - 150);  // wraps around during the test
  leaving_is_told();
  errors_name_ranks_of_the_group();
}
