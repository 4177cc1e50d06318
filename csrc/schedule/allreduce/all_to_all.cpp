// All to all: each rank sends its complete buffer to every rank, and reduces all buffers.
//
//        0 ───► 1          one round: all sends are posted together, to r+1, r+2, ...
//        ▲ ╲  ╱ │          (each arrow stands for both directions)
//        │  ╳   │          rank 2 of 4:   t = x0;  t = t+x1;  x = t+x2;  x = x+x3
//        │ ╱ ╲  ▼
//        3 ◄─── 2          symmetry: rotation
//
// Cost: (p-1)α + (p-1)Sβ + (p-1)Sγ, depth 1, the minimum. For tiny buffers and few ranks.
// Source: a textbook algorithm.
//
// All ranks compute the sum in rank order, so all hold equal bits: the ranks below a rank are
// summed in a scratch block first.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allreduce_all_to_all(int rank, int size, int) {
  constexpr int mine = 0, scratch = 1;
  Schedule s = blank(Collective::allreduce, "all_to_all", rank, size, 1, Symmetry::rotation);
  if (size == 1) return s;
  s.temps = {mine};
  Round& round = s.round(0);
  for (int d = 1; d < size; ++d) round.push_back(send(modulo(rank + d, size), mine));
  if (rank > 0) round.push_back(receive(0, scratch));
  for (int q = 1; q < rank; ++q) round.push_back(reduce(q, scratch, false));
  if (rank > 0) round.push_back(combine(scratch, mine, true));
  for (int q = rank + 1; q < size; ++q) round.push_back(reduce(q, mine, false));
  return s;
}

}  // namespace ringcomm::schedules
