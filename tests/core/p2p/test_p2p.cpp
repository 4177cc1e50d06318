// Tests messages between ranks that are threads: random programs on every route, against the
// expected messages.
#include <algorithm>
#include <thread>

#include "message_ranks.hpp"
#include "random.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

std::size_t some_size(Random& random) {
  constexpr std::size_t kSizes[]{0, 1, 4, 200, 216, 217, 4096, 16384, 16385, 65536, 65537, 300'000, 2'500'000};
  return kSizes[below(random, kSanitized ? 11 : 13)];
}

// Sends messages with random tags from every rank to every rank in the background. Receives the
// same number, by tag, by source, or by wildcard. Messages of one (source, tag) arrive in the order
// sent.
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
        // receives only messages that have arrived, because peers may be equally late
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

}  // namespace

int main() {
  for (const auto& [hosts, shared] : kWorlds) {
    for (std::uint64_t seed = 0; seed < (kSanitized ? 1 : 4); ++seed) {
      World world(hosts, shared);
      random_program(world, seed);
    }
  }
  return 0;
}
