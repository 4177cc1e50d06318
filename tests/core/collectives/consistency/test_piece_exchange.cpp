// Tests the exchange of one small piece between every pair of ranks.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "collectives/consistency/piece_exchange.hpp"
#include "ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

void run(Task& task) {
  while (task.advance() != Progress::done) std::this_thread::yield();
}

// Exchanges pieces of every size, empty and full ones. Every rank notices if one digest differs.
void pieces(int size) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    const auto transport = make_threads_transport(hub, rank);
    std::vector<int> peers(static_cast<std::size_t>(size));
    std::iota(peers.begin(), peers.end(), 0);
    PieceExchange none(*transport, peers, rank, 0), some(*transport, peers, rank, 100);
    for (int turn = 0; turn < 6; ++turn) {
      const std::size_t most = turn == 0 ? 0 : 100;
      const auto length = [&](int of) { return (static_cast<std::size_t>(of * 37 + turn * 50)) % (most + 1); };
      PieceExchange& task = turn == 0 ? none : some;
      std::fill_n(task.open(turn % 2), length(rank), static_cast<std::byte>(rank + turn));
      const bool odd = turn % 3 == 2 && rank == turn % size;
      task.post(odd ? 7 : 5, length(rank));
      run(task);
      CHECK(task.identical() == (turn % 3 != 2 || size == 1));
      for (int of = 0; task.identical() && of < size; ++of) {
        const std::byte* const piece = task.pieces()[static_cast<std::size_t>(of)];
        CHECK(std::all_of(piece, piece + length(of),
                          [&](std::byte b) { return b == static_cast<std::byte>(of + turn); }));
      }
    }
  });
}

// Merges pieces in the order of ranks while they are sent. If the calls differ, every rank learns
// it instead.
void merged(int size) {
  const auto hub = make_threads_hub(size);
  std::vector<unsigned> results(static_cast<std::size_t>(size));
  for (int turn = 0; turn < 4; ++turn) {
    on_ranks(size, [&](int rank) {
      const auto transport = make_threads_transport(hub, rank);
      std::vector<int> peers(static_cast<std::size_t>(size));
      std::iota(peers.begin(), peers.end(), 0);
      PieceExchange task(*transport, peers, rank, 64);
      const unsigned mine = 1u << rank % 16;
      std::memcpy(task.open(0), &mine, sizeof mine);
      const auto in_order = [](std::byte* into, const std::byte* lower, const std::byte* upper) {
        unsigned a, b;
        std::memcpy(&a, lower, sizeof a);
        std::memcpy(&b, upper, sizeof b);
        a = a * 3 + b;
        std::memcpy(into, &a, sizeof a);
      };
      const bool odd = turn > 0 && rank == (size - 1) / turn;
      if (odd && turn == 1)
        task.post_nothing();
      else if (odd && turn == 2)
        task.post(6, 64);  // another call, whose pieces are not merged
      else
        task.post(odd ? 6 : 5, sizeof mine, in_order);
      run(task);
      CHECK(task.identical() == (turn == 0 || (size == 1 && turn != 1)));
      if (turn > 0) return;
      CHECK(task.pieces().size() == 1);
      std::memcpy(&results[static_cast<std::size_t>(rank)], task.pieces()[0], sizeof(unsigned));
    });
    CHECK(std::all_of(results.begin(), results.end(), [&](unsigned x) { return x == results[0]; }));
  }
  CHECK(size != 4 || results[0] == (1u * 3 + 2) * 3 + (4 * 3 + 8));
}

}  // namespace

int main() {
  for (const int size : {1, 2, 4, 8, 16, 32}) merged(size);
  for (int size = 1; size <= 9; ++size) pieces(size);
  for (const int size : {16, 33}) pieces(size);
  std::puts("exchange of pieces: all passed");
}
