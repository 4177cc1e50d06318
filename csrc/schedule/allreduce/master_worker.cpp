// Master and workers: all send to rank 0, which reduces in rank order and sends the result back.
//
//        1   2   3            1   2   3
//         ╲  │  ╱              ▲  ▲  ▲
//          ▼ ▼ ▼                ╲ │ ╱
//            0      round 0       0      round 1
//
// Cost: the root takes, then sends, (p-1)S:  2(p-1)α + 2(p-1)Sβ + (p-1)Sγ, depth 2; a worker sends S once.
// Source: the parameter server of the lectures, with one server.
#include "schedule/built_in.hpp"
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allreduce_master_worker(int rank, int size, int) {
  Schedule s = blank(Collective::allreduce, "master_worker", rank, size, 1);
  s.busiest = {0};
  if (size == 1) return s;
  extend(s, 2);
  if (rank > 0) {
    s.rounds[0] = {send(0, 0)};
    s.rounds[1] = {receive(0, 0)};
    return s;
  }
  for (int q = 1; q < size; ++q) {
    s.rounds[0].push_back(reduce(q, 0, false));
    s.rounds[1].push_back(send(q, 0));
  }
  return s;
}

}  // namespace ringcomm::schedules
