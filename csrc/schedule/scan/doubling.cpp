// Each rank's reduction of the ranks up to it, in their order: what has been summed up goes to the rank at distance 1,
// 2, 4, ... above, as the first operand.
//
//        0 ──► 1 ──► 2 ──► 3 ──► 4      round 0: rank r holds r-1 .. r
//        0 ────────► 2 ────────► 4      round 1: r-3 .. r
//              1 ────────► 3
//        0 ────────────────────► 4      round 2: r-7 .. r
//
// An exscan, of the ranks before, begins with a round in which each rank gives its data to the next.
//
// Cost, L = ceil(log2 p):  Lα + LSβ + LSγ, depth L; of an exscan one round of α + Sβ more. No operation has to commute.
// Source: W. D. Hillis, G. L. Steele, Data Parallel Algorithms, CACM 29(12), 1986.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {
namespace {

// Among the ranks from `first` on.
void scan_upwards(Schedule& s, std::size_t round, int first) {
  for (int distance = 1; first + distance < s.size; distance *= 2, ++round) {
    Round& now = s.round(round);
    if (s.rank >= first && s.rank + distance < s.size) now.push_back(send(s.rank + distance, 0));
    if (s.rank - distance >= first) now.push_back(reduce(s.rank - distance, 0, true));
  }
}

}  // namespace

Schedule scan_doubling(int rank, int size, int) {
  Schedule s = blank(Collective::scan, "doubling", rank, size, 1, Symmetry::none);
  s.busiest = {0, size - 1};  // one sends in every round, the other reduces in every round
  s.lag = size - 1;
  scan_upwards(s, 0, 0);
  return s;
}

Schedule exscan_doubling(int rank, int size, int) {
  Schedule s = blank(Collective::exscan, "doubling", rank, size, 1, Symmetry::none);
  s.busiest = {size > 2 ? 1 : 0, size - 1};
  s.lag = size - 1;
  if (size > 1) {
    Round& first = s.round(0);
    if (rank + 1 < size) first.push_back(send(rank + 1, 0));
    if (rank > 0) first.push_back(receive(rank - 1, 0));
  }
  scan_upwards(s, 1, 1);
  return s;
}

}  // namespace ringcomm::schedules
