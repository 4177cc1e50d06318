// Tests direct messages: pieces of memory that are sent from rank to rank.
#include "collectives/direct_messages.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

constexpr std::size_t kLongest = 100;
constexpr std::size_t kSizes[] = {0, 1, kLongest, kLongest + 1, 10 * kLongest + 7};

void run(DirectMessages& messages) {
  while (messages.advance() != Progress::done) std::this_thread::yield();
}

Error error_of(DirectMessages& messages) {
  try {
    run(messages);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::internal, "there was none");
}

std::vector<std::uint8_t> piece(int from, int to, std::size_t nbytes) {
  std::vector<std::uint8_t> made(nbytes);
  std::iota(made.begin(), made.end(), static_cast<std::uint8_t>(from * 16 + to));
  return made;
}

// Sends pieces of every length between all pairs of ranks: empty ones, and ones that need several
// messages.
void all_to_all(int size) {
  with_channels(size, false, {}, [&](RankContext& here) {
    DirectMessages messages(here.channel.context(), kLongest);
    for (const std::size_t nbytes : kSizes) {
      std::vector<std::vector<std::uint8_t>> sent, received(static_cast<std::size_t>(size));
      messages.begin();
      for (int rank = 0; rank < size; ++rank) {
        std::vector<std::uint8_t>& room = received[static_cast<std::size_t>(rank)];
        room.resize(nbytes);
        sent.push_back(piece(here.rank, rank, nbytes));
        if (rank == here.rank) continue;
        messages.receive(rank, room.data(), nbytes);
        messages.send(rank, sent.back().data(), nbytes);
      }
      run(messages);
      for (int rank = 0; rank < size; ++rank)
        CHECK(rank == here.rank || received[static_cast<std::size_t>(rank)] == piece(rank, here.rank, nbytes));
      CHECK(!messages.abandon());
    }
  });
}

// Checks that the error names the rank that sends less than expected.
void of_another_length() {
  with_channels(2, false, {}, [](RankContext& here) {
    DirectMessages messages(here.channel.context());
    std::vector<std::uint8_t> bytes(10);
    messages.begin();
    if (here.rank == 0) {
      messages.send(1, bytes.data(), 9);
      return run(messages);
    }
    messages.receive(0, bytes.data(), 10);
    const Error error = error_of(messages);
    CHECK(error.kind() == ErrorKind::mismatch && error.ranks() == std::vector<int>{0});
  });
}

// Checks that no rank waits for a peer that left before the exchange. Operations already posted are
// cancelled.
void without_a_peer() {
  with_channels(2, false, {}, [](RankContext& here) {
    DirectMessages messages(here.channel.context());
    if (here.rank == 0) return here.channel.leave();
    std::uint64_t room = 0;
    messages.begin();
    messages.receive(0, &room, sizeof room);
    const Error error = error_of(messages);
    CHECK(error.kind() == ErrorKind::left && error.ranks() == std::vector<int>{0});
    CHECK(messages.abandon());
  });
}

}  // namespace

int main() {
  for (int size = 1; size <= 5; ++size) all_to_all(size);
  of_another_length();
  without_a_peer();
  std::puts("direct messages: all passed");
}
