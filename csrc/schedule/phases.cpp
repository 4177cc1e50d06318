// Implements the phases that several algorithms are built from: folding, binomial trees, rings, and
// circulant graphs.
#include "schedule/phases.hpp"

namespace ringcomm::schedules {
namespace {

// Returns the lowest rank with a part in a partial sum of a circulant share-reduce: the sum that
// the rank `offset` places before the block's owner holds before the round of distance stride/2.
// This sum contains the parts of the ranks offset, offset + stride, ... (below p) places before the
// owner.
int lowest_on_circle(int block, int offset, int stride, int size) {
  const int hops = (size - 1 - offset) / stride;
  const int nearest = modulo(block - offset, size);
  const int before_wrap = std::min(hops, nearest / stride);
  const int low = nearest - before_wrap * stride;
  return hops > before_wrap ? std::min(low, nearest - hops * stride + size) : low;
}

}  // namespace

Schedule blank(Collective collective, const char* algorithm, int rank, int size, int blocks, Symmetry symmetry,
               int root) {
  return {.collective = collective,
          .algorithm = algorithm,
          .rank = rank,
          .size = size,
          .root = root,
          .blocks = blocks,
          .symmetry = symmetry};
}

std::size_t extend(Schedule& schedule, int rounds) {
  const std::size_t first = schedule.rounds.size();
  schedule.rounds.resize(first + static_cast<std::size_t>(rounds));
  return first;
}

void fold_in(Schedule& s, const Fold& fold) {
  if (fold.rest == 0) return;
  Round& round = s.rounds[extend(s, 1)];
  if (s.rank >= 2 * fold.rest) return;
  for (int b = 0; b < s.blocks; ++b) {
    round.push_back(fold.waits(s.rank) ? send(s.rank - 1, b) : reduce(s.rank + 1, b, false));
  }
}

void fold_out(Schedule& s, const Fold& fold) {
  if (fold.rest == 0) return;
  Round& round = s.rounds[extend(s, 1)];
  if (s.rank >= 2 * fold.rest) return;
  for (int b = 0; b < s.blocks; ++b) round.push_back(fold.waits(s.rank) ? receive(s.rank - 1, b) : send(s.rank + 1, b));
}

void binomial_reduce(Schedule& s) {
  const int p = s.size, v = modulo(s.rank - s.root, p);
  std::size_t at = extend(s, ceil_log2(p));
  for (int d = 1; d < p; d *= 2, ++at) {
    if (v & d) {
      s.rounds[at].push_back(send(modulo(s.rank - d, p), 0));
      return;
    }
    if (v + d >= p) continue;
    const int child = modulo(s.rank + d, p);  // holds the sum of d ranks from itself on, or of all up to the last
    const bool first = lowest(child, std::min(d, p - v - d), p) < lowest(s.rank, d, p);
    s.rounds[at].push_back(reduce(child, 0, first));
  }
}

void binomial_broadcast(Schedule& s) {
  const int p = s.size, v = modulo(s.rank - s.root, p);
  std::size_t at = extend(s, ceil_log2(p));
  for (int d = bit_floor(std::max(1, p - 1)); p > 1 && d > 0; d /= 2, ++at) {
    if (v % (2 * d) == d) s.rounds[at].push_back(receive(modulo(s.rank - d, p), 0));
    if (v % (2 * d) == 0 && v + d < p) s.rounds[at].push_back(send(modulo(s.rank + d, p), 0));
  }
}

void ring_share_reduce(Schedule& s, int ahead) {
  const int p = s.size, r = s.rank;
  std::size_t at = extend(s, p - 1);
  for (int i = 0; i < p - 1; ++i, ++at) {
    // The incoming sum contains the parts of consecutive ranks up to the one before this rank. One
    // of these ranks is lower than this rank, unless this is rank 0.
    s.rounds[at] = {send(modulo(r + 1, p), modulo(r - 1 - i + ahead, p)),
                    reduce(modulo(r - 1, p), modulo(r - 2 - i + ahead, p), r != 0)};
  }
}

void ring_share_only(Schedule& s, int ahead) {
  const int p = s.size, r = s.rank;
  std::size_t at = extend(s, p - 1);
  for (int i = 0; i < p - 1; ++i, ++at) {
    s.rounds[at] = {send(modulo(r + 1, p), modulo(r - i + ahead, p)),
                    receive(modulo(r - 1, p), modulo(r - 1 - i + ahead, p))};
  }
}

void circulant_share_reduce(Schedule& s) {
  const int p = s.size, r = s.rank;
  std::size_t at = extend(s, ceil_log2(p));
  for (int d = p > 1 ? bit_floor(p - 1) : 0; d > 0; d /= 2, ++at) {
    const int count = std::min(d, p - d), to = modulo(r + d, p), from = modulo(r - d, p);
    for (int j = 0; j < count; ++j) s.rounds[at].push_back(send(to, modulo(to + j, p)));
    for (int j = 0; j < count; ++j) {
      const int block = modulo(r + j, p);
      const bool first = lowest_on_circle(block, j + d, 2 * d, p) < lowest_on_circle(block, j, 2 * d, p);
      s.rounds[at].push_back(reduce(from, block, first));
    }
  }
}

void circulant_share_only(Schedule& s) {
  const int p = s.size, r = s.rank;
  std::size_t at = extend(s, ceil_log2(p));
  for (int d = 1; d < p; d *= 2, ++at) {
    const int count = std::min(d, p - d), to = modulo(r - d, p), from = modulo(r + d, p);
    for (int j = 0; j < count; ++j) s.rounds[at].push_back(send(to, modulo(r + j, p)));
    for (int j = 0; j < count; ++j) s.rounds[at].push_back(receive(from, modulo(from + j, p)));
  }
}

}  // namespace ringcomm::schedules
