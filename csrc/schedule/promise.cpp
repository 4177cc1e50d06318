// Defines the initial values and the required result of every collective, for the prover and for
// pictures.
#include "schedule/promise.hpp"

#include <algorithm>

namespace ringcomm {

bool has_operation(Collective c) { return computes(c) || c == Collective::barrier; }

Values initial_values(const std::vector<Schedule>& schedules, Symbols& symbols) {
  Values values(schedules.size());
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    const Schedule& s = schedules[r];
    values[r].assign(static_cast<std::size_t>(s.blocks) + s.temps.size(), Symbols::undefined);
    for (int b = 0; b < s.blocks; ++b) {
      const bool given = has_operation(s.collective) || (s.collective == Collective::broadcast && s.rank == s.root) ||
                         (s.collective == Collective::allgather && b == s.rank) ||
                         (s.collective == Collective::alltoall && b < s.size);
      if (given) values[r][static_cast<std::size_t>(b)] = symbols.leaf(s.rank, b);
    }
  }
  return values;
}

std::optional<Origin> promised_origin(const Schedule& s, int block) {
  if (s.collective == Collective::broadcast) return Origin{s.root, block};
  if (s.collective == Collective::allgather) return Origin{block, block};
  if (s.collective != Collective::alltoall) return {};
  // A block received from rank q is the block that q sent to this rank.
  return block < s.size ? Origin{s.rank, block} : Origin{block - s.size, s.rank};
}

double completeness(const Schedule& s, int block, Symbols::Id value, Symbols& symbols) {
  if (value == Symbols::undefined) return 0;
  if (has_operation(s.collective)) {
    const Symbols::Node& node = symbols.at(value);
    const int whole = s.collective == Collective::scan     ? s.rank + 1
                      : s.collective == Collective::exscan ? s.rank
                                                           : s.size;
    if (whole == 0) return 1;
    if (s.collective == Collective::exscan && static_cast<int>(node.lowest) == s.rank) return 0;  // excludes itself
    return std::min(1.0, static_cast<double>(node.parts) / whole);
  }
  if (block >= s.blocks) return 0.5;
  const Origin promised = *promised_origin(s, block);
  return value == symbols.leaf(promised.rank, promised.block) ? 1 : 0;
}

}  // namespace ringcomm
