// Chain to the root: blocks form a pipeline, and each rank adds its part to each block it receives.
//
//        0 ◄─b0─ 1 ◄─b1─ 2 ◄─b2─ 3      round 2: block 0's last hop, block 2's first hop
//
// Cost with m blocks:  (p-2+m)(α + S(β+γ)/m), m = 4p: each rank sends S bytes once, S(1 + 1/4)(β+γ)
// for many ranks.
// Source: the classic pipelined broadcast, reversed.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule reduce_chain(int rank, int size, int root) {
  const int m = 4 * size, v = modulo(rank - root, size);
  Schedule s = blank(Collective::reduce, "chain", rank, size, m, Symmetry::none, root);
  s.busiest = {root, modulo(root + std::max(1, size - 2), size)};  // one receives in the last rounds, one in the first
  if (size == 1) return s;
  extend(s, size - 2 + m);
  const int next = modulo(rank + 1, size), behind = size - 1 - v;  // number of ranks that send through `next`
  const bool first = behind > 0 && lowest(next, behind, size) < rank;
  for (int b = 0; b < m; ++b) {  // block b leaves the last rank in round b
    const auto leaves = static_cast<std::size_t>(b + behind);
    if (behind > 0) s.rounds[leaves - 1].push_back(reduce(next, b, first));
    if (v > 0) s.rounds[leaves].push_back(send(modulo(rank - 1, size), b));
  }
  return s;
}

}  // namespace ringcomm::schedules
