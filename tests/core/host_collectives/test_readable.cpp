// Tests collectives that only move data, directly from the senders' arrays. Every rank gets the
// correct bytes, with any arrays shared, and if some ranks cannot read their peers' memory. Ranks
// are processes, then threads.
#include "host_collectives/readable.hpp"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <random>

#include "base/error.hpp"
#include "check.hpp"
#include "memory_calls.hpp"
#include "processes.hpp"

using namespace ringcomm;
using ringcomm::testing::Processes;
using ringcomm::testing::run_call;

using Bytes = std::vector<std::byte>;
using Counts = std::vector<std::size_t>;

// A call with the fields that all ranks know.
struct Plan {
  Collective collective = Collective::broadcast;
  int root = 0;
  // alltoall: one per rank, with the rows to each rank; otherwise one, with the rows of each rank
  std::vector<Counts> rows;
  std::vector<bool> shared;  // by rank: the input is in the arena
  bool even = false, in_place = false;
};

static std::byte value(int giver, std::size_t index) {
  return static_cast<std::byte>((index * 31 + static_cast<std::size_t>(giver) * 7 + index / 251) % 256);
}

static Bytes given(int giver, std::size_t first, std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = value(giver, first + i);
  return bytes;
}

static Plan random_plan(std::mt19937& random, int size) {
  const Collective collectives[] = {Collective::broadcast, Collective::allgather, Collective::alltoall};
  // all are short in half of the plans, so that an uneven all-to-all passes through payloads
  static const std::vector<std::size_t> short_counts{0, 1, 40, 40, 300, 700},
      all_counts{0, 1, 300, 5000, 5000, 70'000, 600'000};
  const std::vector<std::size_t>& counts = random() % 2 == 0 ? short_counts : all_counts;
  Plan plan;
  plan.collective = collectives[random() % 3];
  plan.root = static_cast<int>(random() % static_cast<unsigned>(size));
  plan.even = random() % 2 == 0;
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t count = counts[random() % std::size(counts)];
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Counts& row = plan.rows.emplace_back();
    for (std::size_t to = 0; to < ranks; ++to) row.push_back(plan.even ? count : counts[random() % std::size(counts)]);
  }
  const bool all = random() % 3 == 0, none = random() % 2 == 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) plan.shared.push_back(all || (!none && random() % 2 == 0));
  plan.in_place = plan.even && random() % 3 == 0;
  return plan;
}

// Makes this rank's call and checks the result.
static void run(Epochs& epochs, const Plan& plan, std::mt19937* delays = nullptr, int dies_after = 0) {
  Node& node = epochs.node();
  const int me = node.rank();
  const auto mine = static_cast<std::size_t>(me);
  Call call;
  call.dtype = DType::uint8;
  call.collective = plan.collective;
  call.root = plan.root;
  Bytes wanted;
  std::size_t first = 0;  // position of this rank's data in the result
  const bool apart = plan.collective == Collective::allgather && !plan.in_place && me % 2 == 1;  // in another order
  if (plan.collective == Collective::broadcast) {
    call.count = plan.rows[0][0];
    wanted = given(plan.root, 0, call.count);
  } else if (plan.collective == Collective::allgather) {
    call.counts = plan.rows[0];
    first = start_of(call.counts, me);
    for (int rank = 0; rank < node.size(); ++rank) {
      const Bytes its = given(rank, 0, call.counts[static_cast<std::size_t>(rank)]);
      wanted.insert(apart ? wanted.begin() : wanted.end(), its.begin(), its.end());
    }
  } else {
    call.counts = plan.rows[mine];
    call.even = plan.even;
    for (int rank = 0; rank < node.size(); ++rank) {
      const Counts& row = plan.rows[static_cast<std::size_t>(rank)];
      call.receive_counts.push_back(row[mine]);
      const Bytes its = given(rank, start_of(row, me), row[mine]);
      wanted.insert(wanted.end(), its.begin(), its.end());
    }
  }
  const std::size_t gives = plan.collective == Collective::broadcast   ? call.count
                            : plan.collective == Collective::allgather ? call.counts[mine]
                                                                       : total(call.counts);
  const Bytes input = given(me, 0, gives);
  Bytes ordinary = input, output(wanted.size(), std::byte{0xEE});
  const std::uint64_t offset = plan.shared[mine] ? node.allocate(std::max(gives, wanted.size()) + 64) : kPrivate;
  std::byte* data = offset == kPrivate ? ordinary.data() : node.at(me, offset);
  std::byte* result = output.data();
  if (plan.in_place) {
    if (offset == kPrivate) data = output.data();
    result = data;
    if (plan.collective == Collective::allgather) data += first;
  }
  std::copy(input.begin(), input.end(), data);
  call.input = data;
  call.output = apart ? nullptr : result;
  for (std::size_t rank = 0, end = wanted.size(); apart && rank < call.counts.size(); ++rank)
    call.output_per_rank.push_back(result + (end -= call.counts[rank]));
  run_call(epochs, call, 64 << 10, delays, dies_after);
  CHECK(std::equal(wanted.begin(), wanted.end(), result));
  if (!plan.in_place) CHECK(std::equal(input.begin(), input.end(), data));  // inputs are not written
  if (offset != kPrivate) node.free(offset);
}

static void many(Epochs& epochs, int calls, bool all_can_read) {
  std::mt19937 common(static_cast<unsigned>(epochs.node().size())), delays(static_cast<unsigned>(epochs.node().rank()));
  if (!all_can_read && epochs.node().rank() == 1) epochs.reads_peers = false;  // as if the system forbids it
  for (int index = 0; index < calls; ++index) {
    const Plan plan = random_plan(common, epochs.node().size());
    for (int again = 0; again < 14; ++again) run(epochs, plan, &delays);  // enough calls to try both paths
  }
}

static void as_processes(int size, bool all_can_read) {
  Processes ranks(size);
  ranks.start([&](Node& node) {
    node.watch(ranks.pidfds(node.rank()));
    Epochs epochs(node, 0);
    many(epochs, kSanitized ? 2 : 6, all_can_read);
  });
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.end_of(rank) == 0);
}

static void as_threads(int size, bool all_can_read) {
  const auto nodes = Node::for_threads(size);
  std::barrier<> ready(size);
  on_ranks(size, [&](int rank) {
    Epochs epochs(*nodes[static_cast<std::size_t>(rank)], 3);
    ready.arrive_and_wait();
    many(epochs, kSanitized ? 2 : 4, all_can_read);
    ready.arrive_and_wait();  // peers may still read this rank's memory
  });
}

// Kills a rank while peers read its memory: the other ranks get an error that names it.
static void a_death(int size, int victim) {
  Processes ranks(size);
  ranks.start([&](Node& node) {
    node.watch(ranks.pidfds(node.rank()));
    Epochs epochs(node, 0);
    const auto ranks_of = static_cast<std::size_t>(size);
    const Plan plan{Collective::allgather, 0, {Counts(ranks_of, 6'000'000)}, std::vector<bool>(ranks_of), true, false};
    for (int call = 0; call < 7; ++call) run(epochs, plan);
    const std::uint64_t staged = epochs.staged;
    run(epochs, plan);
    CHECK(epochs.staged == staged || !*epochs.reads_peers);  // it has been the first rank that reads
    try {
      run(epochs, plan, nullptr, node.rank() == victim ? 3 : 0);
      CHECK(!"the call must fail");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::peer_lost);
      CHECK(std::ranges::count(error.ranks(), victim) == 1);
    }
  });
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.end_of(rank) == (rank == victim ? 128 + SIGKILL : 0));
}

int main() {
  for (const int size : {1, 2, 3, 5}) as_processes(size, true);
  as_processes(2, false);
  for (const int victim : {0, 1}) a_death(2, victim);
  for (int size = 1; size <= 9; ++size) as_threads(size, true);
  as_threads(2, false);
}
