// Tests a store between ranks without shared memory. Another rank's worker executes each request
// once, in order, completely, and not before it is due. Also tests the store's end.
#include "param_server/service.hpp"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "engine_ranks.hpp"

namespace ringcomm::store {
namespace {

constexpr std::uint64_t kShard = 77;
constexpr std::size_t kMany = 3 * Client::kSegment / sizeof(float) + 4099;  // elements: several segments

// Private memory of one rank: weights, and clocks.
template <class T = float>
struct Owned {
  static constexpr bool kWide = sizeof(T) == sizeof(double);
  Owned(int workers, std::size_t count, std::size_t states, bool gathers)
      : memory(Shard::bytes(count, kWide, states, gathers) / 8 + 8), table(Clocks::bytes(workers) / 8 + 8),
        shard(std::make_shared<Shard>(at(memory), 0, count, kWide, states, gathers, nullptr, 0)),
        clocks(std::make_shared<Clocks>(at(table), workers, nullptr)) {
    const std::vector<T> zeros(count);
    shard->make(zeros.data());
  }
  static std::byte* at(std::vector<std::uint64_t>& words) {
    const auto address = reinterpret_cast<std::uintptr_t>(words.data());
    return reinterpret_cast<std::byte*>(round_up(address, 64));
  }
  std::vector<T> weights() {
    std::vector<T> out(shard->count());
    shard->apply(Rule::get, {}, {0, out.size()}, nullptr, nullptr, out.data());
    return out;
  }
  std::vector<std::uint64_t> memory, table;
  std::shared_ptr<Shard> shard;
  std::shared_ptr<Clocks> clocks;
};

struct Storing : Rank {
  Storing(const std::shared_ptr<ThreadsHub>& hub, int r, int s, std::size_t count, Gathering how = {0, false},
          bool threaded = true)
      : Rank(hub, r, s, {}, threaded), own(s, count, 0, how.many > 0) {
    std::vector<int> ranks(static_cast<std::size_t>(s));
    std::iota(ranks.begin(), ranks.end(), 0);
    service->server.serve(kShard, {own.shard, own.clocks, ranks, how});
    engine->add_service(service);
  }
  std::shared_ptr<PostedRequest> make_request(int peer, Rule rule, std::vector<Range> ranges = {}) {
    auto made = std::make_shared<PostedRequest>();
    made->peer = peer;
    made->head.rule = rule;
    made->head.shard = kShard;
    made->head.options.lr = 1;
    made->ranges = std::move(ranges);
    return made;
  }
  std::shared_ptr<PostedRequest> push(int peer, Rule rule, const std::vector<float>& gradient,
                                      std::vector<float>* result, std::int64_t clock = -1) {
    auto made = make_request(peer, rule, {{0, gradient.size()}});
    made->gradient = gradient.data();
    if (result) made->result = result->data();
    made->head.clock = clock;
    return made;
  }
  std::shared_ptr<PostedRequest> pull(int peer, std::vector<float>& result, Due due) {
    auto made = make_request(peer, Rule::get, {{0, result.size()}});
    made->result = result.data();
    made->head.due = due;
    return made;
  }
  void post(const std::shared_ptr<PostedRequest>& made) {
    service->client.post(made);
    engine->wake();
  }
  void done(const std::shared_ptr<PostedRequest>& made) {
    post(made);
    CHECK(!outcome(made));
  }
  Owned<> own;
  const std::shared_ptr<store::Service> service = std::make_shared<store::Service>();
};

// Pushes from every rank to every other shard, several requests at a time, without waits: no update
// is lost, and a pulled value includes at least that rank's pushes.
void nothing_is_lost(int size, std::size_t count, bool threaded) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  constexpr int kRounds = 6;
  on_ranks(size, [&](int rank) {
    Storing r(hub, rank, size, count, {0, false}, threaded);
    const std::vector<float> ones(count, -1.0f);
    std::vector<std::vector<float>> results(static_cast<std::size_t>(size), std::vector<float>(count));
    std::deque<std::shared_ptr<PostedRequest>> all;
    for (int round = 0; round < kRounds; ++round) {
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        const bool last = round == kRounds - 1;
        all.push_back(r.push(peer, Rule::sgd, ones, last ? &results[static_cast<std::size_t>(peer)] : nullptr));
        r.post(all.back());
      }
    }
    for (const auto& request : all) CHECK(!r.outcome(request));
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      for (const float value : results[static_cast<std::size_t>(peer)]) CHECK(value >= kRounds);
    }
    std::vector<std::int32_t> together(1, 1);
    CHECK(!r.outcome(r.engine->submit(0, named("end", together))));
    for (const float value : r.own.weights()) CHECK(value == static_cast<float>(kRounds * (size - 1)));
    CHECK(count == 0 || r.own.shard->version() == static_cast<std::uint64_t>(kRounds * (size - 1)));
    if (threaded) end.arrive_and_wait();
    r.engine->leave();
  });
}

// Accesses ranges of two arrays, one after the other, in float64 and in float32.
void ranges_are_where_they_belong() {
  const auto hub = make_threads_hub(2);
  std::barrier end(2);
  on_ranks(2, [&](int rank) {
    Rank r(hub, rank, 2);
    const auto service = std::make_shared<store::Service>();
    Owned<double> own(2, 100'000, 0, false);
    service->server.serve(kShard, {own.shard, own.clocks, {0, 1}, {}});
    r.engine->add_service(service);
    end.arrive_and_wait();
    Random random(static_cast<unsigned>(rank));
    std::vector<double> expected(100'000);
    for (int turn = 0; turn < 20; ++turn) {
      auto posted = std::make_shared<PostedRequest>();
      posted->peer = 1 - rank;
      posted->element = sizeof(double);
      posted->head.rule = Rule::sgd;
      posted->head.shard = kShard;
      posted->head.options.lr = 1;
      posted->head.options.compensate = 1;
      std::vector<double> values, pulled;
      std::size_t at = 0;
      while (at < expected.size()) {
        const std::size_t count =
            std::min<std::size_t>(1 + below(random, turn % 2 ? 60'000 : 50), expected.size() - at);
        if (below(random, 2)) posted->ranges.push_back({at, count});
        for (std::size_t i = at; i < at + count && !posted->ranges.empty() && posted->ranges.back().first == at; ++i) {
          values.push_back(static_cast<double>(i % 7) - 3);
          pulled.push_back(expected[i] - 0.5);  // the value after earlier updates, minus this change
          expected[i] -= values.back() + values.back() * values.back() * 0.5;
        }
        at += count;
      }
      std::vector<double> result(values.size());
      posted->gradient = values.data();
      posted->pulled = pulled.data();
      posted->result = result.data();
      service->client.post(posted);
      r.engine->wake();
      CHECK(!r.outcome(posted));
      std::size_t k = 0;
      for (const Range& range : posted->ranges) {
        for (std::size_t i = range.first; i < range.first + range.count; ++i) CHECK(result[k++] == expected[i]);
      }
    }
    end.arrive_and_wait();
    std::vector<double> mine = own.weights();
    CHECK(std::any_of(mine.begin(), mine.end(), [](double value) { return value != 0; }));
    r.engine->leave();
  });
}

// Pulls a value for which other ranks must progress first: the answer follows once they have, and
// includes their updates.
void answered_late() {
  const auto hub = make_threads_hub(3);
  std::barrier end(3);
  on_ranks(3, [&](int rank) {
    Storing r(hub, rank, 3, kMany);
    const std::vector<float> ones(kMany, -1.0f);
    std::vector<float> result(kMany);
    end.arrive_and_wait();
    if (rank == 0) {
      r.own.clocks->set(0, 1);  // the clock of rank 0's shard, which no other rank uses here
    } else if (rank == 1) {
      r.done(r.push(0, Rule::sgd, ones, nullptr, 1));
      const auto late = r.pull(0, result, {1, 0});
      r.post(late);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK(!late->done());  // rank 2 has not pushed
      end.arrive_and_wait();
      CHECK(!r.outcome(late));
      for (const float value : result) CHECK(value == 2);
    }
    if (rank != 1) end.arrive_and_wait();
    if (rank == 2) r.done(r.push(0, Rule::sgd, ones, nullptr, 1));
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// Gathers gradients of ranks that push different numbers of times and then finish; `leaves`:
// without notice to the store.
void gathers(int size, int many, bool of_step, bool leaves) {
  const auto hub = make_threads_hub(size);
  std::barrier end(size);
  on_ranks(size, [&](int rank) {
    Storing r(hub, rank, size, kMany, {many, of_step});
    const std::vector<float> ones(kMany, -1.0f);
    std::vector<float> result(kMany);
    std::uint64_t step = 0;
    if (rank == 0) r.own.clocks->set(0, Clocks::kFinished);  // it only serves
    end.arrive_and_wait();
    if (rank > 0) {
      for (int i = 0; i < 3 + 2 * rank; ++i) {
        auto push = r.push(0, Rule::sgd, ones, nullptr);
        push->head.gathers = true;
        push->head.step = step++;
        r.post(push);
        auto pull = r.pull(0, result, {std::numeric_limits<std::int64_t>::min(), of_step ? step : 0});
        r.done(pull);
        CHECK(push->done() && (of_step || push->arrival != Arrival::dropped));
        const auto [least, most] = std::minmax_element(result.begin(), result.end());
        if (of_step) CHECK(*least >= static_cast<float>(step) && *most <= static_cast<float>(pull->group));
        // Updates that need every worker's gradient cannot occur between the segments of a pull;
        // others can.
        if (of_step && many >= size - 1) CHECK(*least == *most);
        step = std::max(step, pull->group);
      }
      if (leaves) {
        r.engine->leave();
      } else {
        auto finish = r.make_request(0, Rule::get);
        finish->head.clock = Clocks::kFinished;
        r.post(finish);
        r.done(r.pull(0, result, {Clocks::kLost, 0}));
      }
    }
    if (rank == 0) CHECK(r.own.clocks->wait(-1, Clocks::kLost, 60'000'000'000));
    end.arrive_and_wait();
    if (rank == 0) {
      const std::uint64_t groups = r.own.shard->group();
      CHECK(groups >= static_cast<std::uint64_t>(3 + 2 * (size - 1)) / static_cast<std::uint64_t>(many));
      CHECK(!r.own.shard->gathers_now());
      for (const float value : r.own.weights()) CHECK(value == static_cast<float>(groups));  // means of ones
    }
    end.arrive_and_wait();
    r.engine->leave();
  });
}

// Repeats a request: it is not executed again. A request of a rank that left is not executed at
// all.
void a_repeated_request_is_done_once() {
  const auto hub = make_threads_hub(1);
  const auto transport = make_threads_transport(hub, 0);
  Mail mail(*transport, 0);
  Owned<> own(1, 4, 0, false);
  Server server;
  server.serve(kShard, {own.shard, own.clocks, {0}, {}});
  const auto request = [&](std::uint64_t number) {
    struct {
      Head head{};
      Range range{0, 4};
      float values[4] = {-1, -1, -1, -1};
    } all;
    all.head.rule = Rule::sgd;
    all.head.options.lr = 1;
    all.head.shard = kShard;
    all.head.number = number;
    all.head.ranges = 1;
    all.head.gradient = true;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&all);
    return std::vector<std::byte>(bytes, bytes + sizeof all);
  };
  for (const std::uint64_t number : {1, 1, 2, 1, 2, 3}) server.take(0, request(number));
  CHECK(server.turn(mail) && !server.turn(mail));
  CHECK(own.weights() == std::vector<float>(4, 3.0f) && own.shard->version() == 3);
  server.left(0);
  server.take(0, request(4));
  CHECK(!server.turn(mail) && own.clocks->live() == 0);
}

// Sends segments of requests in a random order of ranks: each answer allows the rank with the
// lowest clock several segments in flight, and each other rank in the middle of a request one.
void one_rank_is_admitted(Random& random) {
  const int size = 1 + static_cast<int>(below(random, 6));
  const auto ranks = static_cast<std::size_t>(size);
  const auto hub = make_threads_hub(size);
  std::vector<std::shared_ptr<Transport>> transports;
  std::deque<Mail> mails;
  std::vector<int> workers;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(make_threads_transport(hub, rank));
    mails.emplace_back(*transports.back(), 0);
    workers.push_back(rank);
  }
  Owned<> own(size, 4, 0, false);
  Server server;
  server.serve(kShard, {own.shard, own.clocks, workers, {}});
  struct Request {
    std::int64_t clock;
    std::uint64_t began;
    std::size_t left;  // segments
    auto operator<=>(const Request&) const = default;
  };
  std::vector<std::optional<Request>> open(ranks);
  std::vector<std::uint64_t> numbers(ranks, 0);
  std::uint64_t began = 0;
  std::vector<int> present = workers;
  for (int segment = 0; segment < 300 && !present.empty(); ++segment) {
    const std::size_t index = below(random, present.size());
    const int rank = present[index];
    const auto r = static_cast<std::size_t>(rank);
    Head head;
    head.rule = Rule::get;
    head.shard = kShard;
    head.number = ++numbers[r];
    head.begins = !open[r];
    if (!open[r]) open[r] = Request{own.clocks->of(rank), ++began, 1 + below(random, 4)};
    head.ends = --open[r]->left == 0;
    if (head.ends && below(random, 2)) head.clock = own.clocks->of(rank) + 1;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&head);
    server.take(rank, {bytes, bytes + sizeof head});
    CHECK(server.turn(mails[0]));
    std::optional<MailMessage> answer;
    while (!answer) {
      mails[0].advance();
      answer = mails[r].receive();
    }
    Head found;
    std::memcpy(&found, answer->bytes.data(), sizeof found);
    const bool first = std::ranges::none_of(open, [&](const auto& other) { return other && *other < *open[r]; });
    CHECK(found.answer && (first ? found.window > 1 : found.window == 1));
    if (head.ends) open[r].reset();
    if (below(random, 60) == 0) {
      server.left(rank);
      open[r].reset();
      present.erase(present.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
}

// Sends requests to a rank that leaves or dies: the wait ends with an error that names the cause.
void a_server_goes(bool dies) {
  const auto hub = make_threads_hub(3);
  std::barrier end(3);
  on_ranks(3, [&](int rank) {
    Storing r(hub, rank, 3, kMany);
    const std::vector<float> ones(kMany, -1.0f);
    std::vector<float> result(kMany);
    r.done(r.push((rank + 1) % 3, Rule::sgd, ones, &result));
    end.arrive_and_wait();
    if (rank == 2) {
      if (dies) {
        threads_kill(*hub, rank);
      } else {
        r.engine->leave();
      }
    } else {
      const auto never = r.pull(2, result, {100, 0});
      r.post(never);
      const std::optional<Error> error = r.outcome(never);
      CHECK(error && error->kind() == (dies ? ErrorKind::peer_lost : ErrorKind::left));
      CHECK(error->ranks() == std::vector<int>{2});
      if (!dies) r.done(r.push(1 - rank, Rule::sgd, ones, &result));
    }
    end.arrive_and_wait();
    r.engine->leave();
    const auto after = r.push(0, Rule::sgd, ones, nullptr);
    r.post(after);
    CHECK(r.outcome(after));
  });
}

// Checks that the service stops polling once its store is removed.
void listens_while_it_serves() {
  store::Service service;
  Owned<> own(1, 4, 0, false);
  CHECK(!service.listens());
  service.server.serve(kShard, {own.shard, own.clocks, {0}, {}});
  CHECK(service.listens());
  service.server.forget(kShard);
  CHECK(!service.listens());
}

void all() {
  for (int size = 1; size <= 5; ++size) nothing_is_lost(size, kMany, true);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, 12 * kMany}) nothing_is_lost(2, count, true);
  nothing_is_lost(3, kMany, false);
  ranges_are_where_they_belong();
  answered_late();
  for (const bool leaves : {false, true}) {
    for (int size = 2; size <= 5; ++size) {
      for (int many = 1; many < size; ++many) gathers(size, many, false, leaves);
      gathers(size, size, true, leaves);
      gathers(size, 1, true, leaves);
    }
  }
  a_repeated_request_is_done_once();
  Random random(20261128);
  for (int trial = 0; trial < 100; ++trial) one_rank_is_admitted(random);
  for (const bool dies : {false, true}) a_server_goes(dies);
  listens_while_it_serves();
  std::puts("store service: all passed");
}

}  // namespace
}  // namespace ringcomm::store

int main() { ringcomm::store::all(); }
