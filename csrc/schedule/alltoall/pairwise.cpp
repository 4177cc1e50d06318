// Pairwise exchange: in step i rank r sends to r+i and receives from r-i, one message at a time.
//
//        step 1: 0 ► 1 ► 2 ► 3 ► 0      step 2: 0 ◄► 2, 1 ◄► 3      step 3: 0 ► 3 ► 2 ► 1 ► 0
//
// Cost, f = (p-1)/p:  (p-1)α + fSβ: every byte is sent once, and no rank receives from two ranks at
// a time. Symmetry: rotation.
// Source: MPICH's all-to-all for long messages (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule alltoall_pairwise(int rank, int size, int) {
  Schedule s = blank(Collective::alltoall, "pairwise", rank, size, 2 * size, Symmetry::rotation);
  s.round(0) = {copy_block(rank, size + rank)};
  for (int i = 1; i < size; ++i) {
    const int to = modulo(rank + i, size), from = modulo(rank - i, size);
    Round& round = s.round(static_cast<std::size_t>(i - 1));
    round.push_back(send(to, to));
    round.push_back(receive(from, size + from));
  }
  return s;
}

}  // namespace ringcomm::schedules
