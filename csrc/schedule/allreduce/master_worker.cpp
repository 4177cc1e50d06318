// Master and workers: all ranks send to the root (default rank 0). The root reduces in rank order
// and sends the result back.
//
//        1   2   3            1   2   3
//         ╲  │  ╱              ▲  ▲  ▲
//          ▼ ▼ ▼                ╲ │ ╱
//            0      round 0       0      round 1
//
// Cost: the root receives, then sends, (p-1)S:  2(p-1)α + 2(p-1)Sβ + (p-1)Sγ, depth 2; a worker
// sends S once.
// Source: the classic parameter server, with one server.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule allreduce_master_worker(int rank, int size, int root) {
  Schedule s = blank(Collective::allreduce, "master_worker", rank, size, 1, Symmetry::none, root);
  s.busiest = {root};
  if (size == 1) return s;
  extend(s, 2);
  if (rank != root) {
    s.rounds[0] = {send(root, 0)};
    s.rounds[1] = {receive(root, 0)};
    return s;
  }
  int lowest = root;  // lowest rank with a part in the root's sum
  for (int q = 0; q < size; ++q) {
    if (q == root) continue;
    s.rounds[0].push_back(reduce(q, 0, q < lowest));
    s.rounds[1].push_back(send(q, 0));
    lowest = std::min(lowest, q);
  }
  return s;
}

}  // namespace ringcomm::schedules
