// Chain: each rank forwards the blocks to the next rank, as a pipeline.
//
//        0 ─b2─► 1 ─b1─► 2 ─b0─► 3      round 2: block 0's last hop, block 2's first hop
//
// Cost with m blocks:  (p-2+m)(α + Sβ/m), m = 4p: each rank sends S bytes once, S(1 + 1/4)β for
// many ranks.
// Source: the classic pipelined broadcast. Segments in flight lengthen the pipeline further.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule broadcast_chain(int rank, int size, int root) {
  const int m = 4 * size, v = modulo(rank - root, size);
  Schedule s = blank(Collective::broadcast, "chain", rank, size, m, Symmetry::none, root);
  s.busiest = {root, modulo(root - 1, size)};  // the root is busiest in the first rounds, the last rank in the last
  if (size == 1) return s;
  extend(s, size - 2 + m);
  for (int b = 0; b < m; ++b) {  // block b takes hop h in round b + h
    const auto leaves = static_cast<std::size_t>(b + v);
    if (v > 0) s.rounds[leaves - 1].push_back(receive(modulo(rank - 1, size), b));
    if (v < size - 1) s.rounds[leaves].push_back(send(modulo(rank + 1, size), b));
  }
  return s;
}

}  // namespace ringcomm::schedules
