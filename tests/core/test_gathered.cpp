// One small piece from each rank to every other.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "ranks.hpp"
#include "task/gathered.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

void run(Task& task) {
  while (task.advance() != Progress::done) std::this_thread::yield();
}

// Pieces of every size, empty and full ones, reach every rank; one digest that differs is seen everywhere.
void pieces(int size) {
  const auto hub = make_threads_hub(size);
  on_ranks(size, [&](int rank) {
    const auto transport = make_threads_transport(hub, rank);
    std::vector<int> peers(static_cast<std::size_t>(size));
    std::iota(peers.begin(), peers.end(), 0);
    for (int turn = 0; turn < 6; ++turn) {
      const std::size_t most = turn == 0 ? 0 : 100;
      const auto length = [&](int of) { return (static_cast<std::size_t>(of * 37 + turn * 50)) % (most + 1); };
      Gathering task(*transport, peers, rank, turn % 2, most);
      std::fill_n(task.mine(), length(rank), static_cast<std::byte>(rank + turn));
      const bool odd = turn % 3 == 2 && rank == turn % size;
      task.give(odd ? 7 : 5, length(rank));
      run(task);
      CHECK(task.alike() == (turn % 3 != 2 || size == 1));
      for (int of = 0; of < size; ++of) {
        const std::byte* const piece = task.pieces()[static_cast<std::size_t>(of)];
        CHECK(std::all_of(piece, piece + length(of), [&](std::byte b) { return b == static_cast<std::byte>(of + turn); }));
      }
    }
  });
}

}  // namespace

int main() {
  for (int size = 1; size <= 9; ++size) pieces(size);
  for (const int size : {16, 33}) pieces(size);
  std::puts("gathered: all passed");
}
