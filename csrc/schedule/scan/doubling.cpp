// Scan by doubling: each rank reduces the ranks up to itself, in their order. Each round sends the
// partial sum to the rank at distance 1, 2, 4, ... above, as the first operand.
//
//        0 ──► 1 ──► 2 ──► 3 ──► 4      round 0: rank r holds r-1 .. r
//        0 ────────► 2 ────────► 4      round 1: r-3 .. r
//              1 ────────► 3
//        0 ────────────────────► 4      round 2: r-7 .. r
//
// An exscan excludes the rank itself. It begins with a round in which each rank sends its data to
// the next.
//
// Cost, L = ceil(log2 p):  Lα + LSβ + LSγ, depth L; an exscan takes one round of α + Sβ more. The
// operation need not commute.
// Source: W. D. Hillis, G. L. Steele, Data Parallel Algorithms, CACM 29(12), 1986.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {
namespace {

// Scans the ranks from `first` on.
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
  s.busiest = {0, size - 1};  // the first sends in every round, the last reduces in every round
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
