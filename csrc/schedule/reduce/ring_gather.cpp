// Ring share-reduce, then a binomial gather of the reduced blocks to the root.
//
//        0 ──► 1 ──► 2 ──► 3 ──► 0     rounds 0 .. p-2: each forwards one block; the rank v
//                                      places after the root ends with block v
//        0 ◄─1─ 1   2 ◄─3─ 3           round p-1
//        0 ◄────2,3 2                  round p
//
// Cost, L = ceil(log2 p), f = (p-1)/p:  (p-1+L)α + 2fSβ + fSγ: bandwidth-optimal within a factor 2
// for any p.
// Source: the ring of Patarasuk and Yuan (JPDC 69(2), 2009). It replaces the halving of
// Rabenseifner's reduce (ICCS 2004), which needs extra rounds when p is no power of two.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {

Schedule reduce_ring_gather(int rank, int size, int root) {
  Schedule s = blank(Collective::reduce, "ring_gather", rank, size, size, Symmetry::none, root);
  const int half = bit_floor(std::max(1, size - 1)), subtree = size - half >= half / 2 ? half : half / 2;
  s.busiest = {root, modulo(root + subtree, size)};  // one receives most; the other sends most
  ring_share_reduce(s, -root);                       // leaves the rank v places after the root with block v
  const int v = modulo(rank - root, size);
  std::size_t at = extend(s, ceil_log2(size));
  for (int d = 1; d < size; d *= 2, ++at) {
    if (v & d) {  // this subtree's blocks are v .. v+d-1
      for (int b = v; b < std::min(v + d, size); ++b) s.rounds[at].push_back(send(modulo(rank - d, size), b));
      break;
    }
    for (int b = v + d; b < std::min(v + 2 * d, size); ++b) s.rounds[at].push_back(receive(modulo(rank + d, size), b));
  }
  return s;
}

}  // namespace ringcomm::schedules
