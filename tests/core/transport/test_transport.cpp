// Tests the threads transport: matching, completion, cancellation and lost ranks.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>

#include "base/error.hpp"
#include "check.hpp"
#include "transport/threads.hpp"

using namespace ringcomm;

namespace {

using Buffer = std::vector<std::uint32_t>;

std::size_t bytes_of(const Buffer& buffer) { return buffer.size() * sizeof(std::uint32_t); }

void complete(Transport& transport, Ticket ticket, Arrival* arrival = nullptr) {
  while (!transport.done(ticket, arrival)) {
    if (!transport.poll()) std::this_thread::yield();
  }
}

template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  CHECK(!"an error was expected");
  std::abort();
}

// Returns the content of message `index` from `source` to `target` under `tag`. Its length varies,
// so that not all messages are eager.
Buffer content(int source, int target, int tag, int index) {
  std::mt19937 random(static_cast<unsigned>(((source * 16 + target) * 16 + tag) * 4096 + index));
  const std::size_t longest = random() % 3 == 0 ? 5000 : 40;
  Buffer buffer(random() % longest);
  std::generate(buffer.begin(), buffer.end(), random);
  return buffer;
}

struct Pending {
  Ticket ticket;
  Buffer expected, buffer;
  int peer;
};

// Sends from every rank to every rank, including itself; each posts its sends and receives in a
// different order.
void random_traffic(int size, int tags, int messages, unsigned seed) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    const auto transport = make_threads_transport(hub, rank);
    std::mt19937 random(seed + static_cast<unsigned>(rank));
    std::vector<int> order(static_cast<std::size_t>(size * tags * 2 * messages));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i) % (size * tags * 2);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int> posted(static_cast<std::size_t>(size * tags * 2));
    std::vector<std::unique_ptr<Pending>> pending;
    const auto sweep = [&] {
      std::erase_if(pending, [&](const std::unique_ptr<Pending>& operation) {
        Arrival arrival;
        if (!transport->done(operation->ticket, &arrival)) return false;
        if (operation->peer != kAnyPeer) {
          CHECK(arrival.peer == operation->peer && arrival.nbytes == bytes_of(operation->expected));
          CHECK(std::equal(operation->expected.begin(), operation->expected.end(), operation->buffer.begin()));
        }
        return true;
      });
    };
    for (const int what : order) {
      const int peer = what / (tags * 2), tag = what / 2 % tags, index = posted[static_cast<std::size_t>(what)]++;
      auto operation = std::make_unique<Pending>();
      if (what % 2) {
        operation->buffer = content(rank, peer, tag, index);
        operation->peer = kAnyPeer;  // the test compares nothing for sends
        operation->ticket = transport->send(peer, tag, operation->buffer.data(), bytes_of(operation->buffer));
      } else {
        operation->expected = content(peer, rank, tag, index);
        operation->buffer.resize(operation->expected.size() + random() % 2 * 7);
        operation->peer = peer;
        operation->ticket = transport->receive(peer, tag, operation->buffer.data(), bytes_of(operation->buffer));
      }
      pending.push_back(std::move(operation));
      if (random() % 4 == 0) transport->poll();
      if (random() % 8 == 0) sweep();
    }
    while (!pending.empty()) {
      if (!transport->poll()) std::this_thread::yield();
      sweep();
    }
    CHECK(transport->in_flight() == 0);
    CHECK(!transport->poll());
  });
}

// Checks that a probe for any rank finds each sender's messages in order, and that every message is
// counted.
void any_source() {
  constexpr int kSize = 4, kMessages = 200;
  const auto hub = make_threads_hub(kSize);
  on_ranks(kSize, [&](int rank) {
    const auto transport = make_threads_transport(hub, rank);
    if (rank != 0) {
      for (int i = 0; i < kMessages; ++i) {
        const Buffer buffer(i % 5 == 0 ? 3000 : 1, static_cast<std::uint32_t>(i));
        complete(*transport, transport->send(0, 3, buffer.data(), bytes_of(buffer)));
      }
      return;
    }
    std::vector<int> next(kSize);
    for (int i = 0; i < kMessages * (kSize - 1); ++i) {
      Buffer buffer(3000);
      Arrival arrival;
      Found found;
      while (!transport->probe(kAnyPeer, 3, found)) std::this_thread::yield();
      complete(*transport, transport->receive(found, buffer.data()), &arrival);
      CHECK(arrival.peer == found.arrival.peer);
      const int expected = next[static_cast<std::size_t>(arrival.peer)]++;
      CHECK(arrival.nbytes == (expected % 5 == 0 ? 12000U : 4U));
      CHECK(buffer[0] == static_cast<std::uint32_t>(expected));
      CHECK(arrival.nbytes == 4U || buffer.back() == static_cast<std::uint32_t>(expected));
    }
    CHECK((transport->counts().received == std::vector<std::uint64_t>{0, kMessages, kMessages, kMessages}));
  });
}

void truncation() {
  for (const std::size_t length : {2U, 3000U}) {
    const auto hub = make_threads_hub(2);
    const auto a = make_threads_transport(hub, 0), b = make_threads_transport(hub, 1);
    Buffer sent(length, 7), room(length - 1, 1);
    const Ticket sending = a->send(1, 0, sent.data(), bytes_of(sent));
    const Ticket receiving = b->receive(0, 0, room.data(), bytes_of(room));
    const Error error = error_of([&] { complete(*b, receiving); });
    CHECK(error.kind() == ErrorKind::transport && error.ranks() == std::vector<int>{0});
    CHECK(room == Buffer(length - 1, 1));
    complete(*a, sending);  // the sender does not notice
    CHECK(a->in_flight() == 0 && b->in_flight() == 0);
  }
}

void cancelling() {
  const auto hub = make_threads_hub(2);
  const auto a = make_threads_transport(hub, 0), b = make_threads_transport(hub, 1);
  Buffer first(3000, 1), second(3000, 2), room(3000), unwanted(3000);
  b->cancel(b->receive(0, 0, unwanted.data(), bytes_of(unwanted)));
  const Ticket withdrawn = a->send(1, 0, first.data(), bytes_of(first));
  const Ticket kept = a->send(1, 0, second.data(), bytes_of(second));
  b->poll();  // the receiver has seen both
  a->cancel(withdrawn);
  std::fill(first.begin(), first.end(), 9);
  complete(*b, b->receive(0, 0, room.data(), bytes_of(room)));
  CHECK(room == second && unwanted == Buffer(3000));
  complete(*a, kept);
  a->cancel(kept);  // already finished: no effect
  a->cancel(kNoTicket);
  const Ticket done = a->send(1, 1, nullptr, 0);
  a->cancel(done);  // complete, not collected: the message stays sent
  Arrival arrival;
  complete(*b, b->receive(0, 1, room.data(), 4), &arrival);
  CHECK(arrival.peer == 0 && arrival.nbytes == 0);
  CHECK(a->in_flight() == 0 && b->in_flight() == 0);
  // The cancelled message and the cancelled receive had no counterpart.
  CHECK(a->counts().sent[1] == 3 && b->counts().received[0] == 2);
  const Error error = error_of([&] { (void)a->done(done); });
  CHECK(error.kind() == ErrorKind::internal);
}

void lost_rank() {
  const auto hub = make_threads_hub(3);
  const auto a = make_threads_transport(hub, 0), b = make_threads_transport(hub, 1), c = make_threads_transport(hub, 2);
  Buffer big(3000, 5), room(3000), other(3000);
  const Ticket sending = a->send(1, 0, big.data(), bytes_of(big));
  const Ticket receiving = a->receive(1, 0, room.data(), bytes_of(room));
  const Ticket healthy = a->receive(2, 0, other.data(), bytes_of(other));
  const Ticket own = b->receive(2, 0, room.data(), bytes_of(room));
  threads_kill(*hub, 1);
  const auto lost = [](const Error& error) {
    return error.kind() == ErrorKind::peer_lost && error.ranks() == std::vector<int>{1};
  };
  for (const Ticket ticket : {sending, receiving}) CHECK(lost(error_of([&] { complete(*a, ticket); })));
  Found found;
  CHECK(lost(error_of([&] { (void)a->probe(kAnyPeer, 1, found); })));
  CHECK(lost(error_of([&] { complete(*b, own); })));
  CHECK(lost(error_of([&] { (void)a->send(1, 0, nullptr, 0); })));
  CHECK(lost(error_of([&] { (void)a->receive(1, 0, nullptr, 0); })));
  CHECK(lost(error_of([&] { (void)b->send(2, 0, nullptr, 0); })));
  const Ticket well = c->send(0, 0, big.data(), bytes_of(big));
  complete(*a, healthy);
  complete(*c, well);
  CHECK(other == big);
}

// Destroys a rank, which cancels its sends: their buffers may be freed.
void destroyed_sender() {
  const auto hub = make_threads_hub(2);
  const auto b = make_threads_transport(hub, 1);
  {
    Buffer buffer(3000, 4);
    const auto a = make_threads_transport(hub, 0);
    (void)a->send(1, 0, buffer.data(), bytes_of(buffer));
  }
  Buffer room(3000);
  const Ticket ticket = b->receive(0, 0, room.data(), bytes_of(room));
  b->poll();
  CHECK(!b->done(ticket));
}

void misuse() {
  const auto hub = make_threads_hub(2);
  const auto a = make_threads_transport(hub, 0);
  CHECK(error_of([&] { (void)a->send(2, 0, nullptr, 0); }).kind() == ErrorKind::internal);
  CHECK(error_of([&] { (void)a->send(1, -1, nullptr, 0); }).kind() == ErrorKind::internal);
  CHECK(error_of([&] { (void)a->receive(1, a->tag_limit(), nullptr, 0); }).kind() == ErrorKind::internal);
  CHECK(error_of([&] { (void)make_threads_transport(hub, 2); }).kind() == ErrorKind::invalid);
  CHECK(error_of([&] { (void)make_threads_hub(0); }).kind() == ErrorKind::invalid);
  CHECK(error_of([&] { threads_kill(*hub, -1); }).kind() == ErrorKind::invalid);
}

}  // namespace

int main() {
  for (unsigned seed = 0; seed < 4; ++seed) random_traffic(1 + static_cast<int>(seed), 3, 25, seed);
  any_source();
  truncation();
  cancelling();
  lost_rank();
  destroyed_sender();
  misuse();
}
