// Bruck's all-to-all: a block for the rank i places ahead is forwarded over the powers of two in i,
// lowest first. One message carries all blocks of a hop.
//
//        p = 4:  round 0, to r+1: the blocks for r+1 and r+3
//                round 1, to r+2: the block for r+2, and the one from r-1 for r+2
//
// A block keeps its number i on every hop. For each block i that a rank sends, it receives another
// block i. Blocks that stop at intermediate ranks need scratch: two scratch blocks per i, used
// alternately, so that no round receives into a block that it sends. All blocks must be of one
// size. Symmetry: rotation.
// Cost, L = ceil(log2 p):  Lα + (L/2)Sβ for powers of two: latency-optimal.
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8(11), 1997.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {
namespace {

int ones(int i) { return std::popcount(static_cast<unsigned>(i)); }

// Allocates scratch for blocks with number i at intermediate ranks: two per i, used alternately.
class Stops {
 public:
  explicit Stops(Schedule& schedule) : schedule_(schedule), ids_(static_cast<std::size_t>(2 * schedule.size), -1) {}
  int at(int i, int hops) {
    int& id = ids_[static_cast<std::size_t>(2 * i + hops % 2)];
    if (id < 0) {
      id = schedule_.blocks + static_cast<int>(schedule_.temps.size());
      schedule_.temps.push_back(modulo(schedule_.rank + i, schedule_.size));
    }
    return id;
  }

 private:
  Schedule& schedule_;
  std::vector<int> ids_;
};

}  // namespace

Schedule alltoall_bruck(int rank, int size, int) {
  Schedule s = blank(Collective::alltoall, "bruck", rank, size, 2 * size, Symmetry::rotation);
  s.round(0) = {copy_block(rank, size + rank)};
  Stops stops(s);
  std::size_t at = 0;
  s.rounds.resize(static_cast<std::size_t>(std::max(1, ceil_log2(size))));
  for (int d = 1; d < size; d *= 2, ++at) {
    for (int i = d; i < size; ++i) {
      const int hops = ones(i % d);  // hops of the block before this round
      if (i & d) {
        s.rounds[at].push_back(send(modulo(rank + d, size), hops == 0 ? modulo(rank + i, size) : stops.at(i, hops)));
      }
    }
    for (int i = d; i < size; ++i) {
      const bool arrived = i < 2 * d;
      const int hops = ones(i % d) + 1;
      if (i & d) {
        s.rounds[at].push_back(
            receive(modulo(rank - d, size), arrived ? size + modulo(rank - i, size) : stops.at(i, hops)));
      }
    }
  }
  return s;
}

}  // namespace ringcomm::schedules
