// Implements the prover: it checks the form of the schedules, runs them on symbols, and compares
// the final values with the promise of the collective.
#include "schedule/prove.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "schedule/declared.hpp"
#include "schedule/promise.hpp"
#include "schedule/symbols.hpp"

namespace ringcomm {
namespace {

using std::to_string;

// ---- declarations and form of a schedule

std::string wrong_number_of_blocks(const Schedule& s) {
  int wanted = s.blocks < 1 ? 1 : s.blocks;
  if (s.collective == Collective::allgather || s.collective == Collective::reducescatter) wanted = s.size;
  if (s.collective == Collective::alltoall) wanted = 2 * s.size;
  if (s.collective == Collective::barrier) wanted = 1;
  if (s.blocks == wanted) return {};
  return concat("it has ", s.blocks, " blocks, but ", name_of(s.collective), " of ", s.size, " ranks needs ", wanted);
}

std::string wrong_head(const std::vector<Schedule>& schedules, std::size_t rank) {
  const Schedule &s = schedules[rank], &first = schedules.front();
  const std::string prefix = concat("rank ", rank, ": ");
  if (s.rank != static_cast<int>(rank) || s.size != static_cast<int>(schedules.size()))
    return concat(prefix, "the schedule is for rank ", s.rank, " of ", s.size);
  if (std::tie(s.collective, s.root, s.blocks, s.symmetry, s.busiest, s.lag) !=
      std::tie(first.collective, first.root, first.blocks, first.symmetry, first.busiest, first.lag)) {
    return prefix + "its collective, root, number of blocks, symmetry, busiest ranks or lag differ from rank 0's";
  }
  for (const int rank : s.busiest) {
    if (rank < 0 || rank >= s.size) return concat(prefix, "rank ", rank, ", declared as busiest, does not exist");
  }
  if (s.root < 0 || s.root >= s.size) return concat(prefix, "root ", s.root, " is not one of the ", s.size, " ranks");
  if (const std::string why = wrong_number_of_blocks(s); !why.empty()) return prefix + why;
  for (std::size_t t = 0; t < s.temps.size(); ++t) {
    if (s.temps[t] < 0 || s.temps[t] >= s.blocks)
      return concat(prefix, "temporary ", t, " has the size of block ", s.temps[t], ", which does not exist");
  }
  return {};
}

std::string wrong_step(const Schedule& s, const Step& step) {
  const int all = s.blocks + static_cast<int>(s.temps.size());
  const auto missing = [&](int block) { return block < 0 || block >= all; };
  if (missing(step.block))
    return concat("block ", step.block, " does not exist: there are ", all, " blocks and temporaries");
  const std::string block = "block " + to_string(step.block);
  if (is_local(step.kind) && missing(step.source))
    return concat(block, " is made from block ", step.source, ", which does not exist");
  if (!is_local(step.kind) && (step.peer < 0 || step.peer >= s.size))
    return concat(block, " has peer ", step.peer, ", which is not a rank");
  if (!is_local(step.kind) && step.peer == s.rank) return block + " has the rank itself as its peer";
  if (computes(step.kind) && !has_operation(s.collective))
    return concat(block, " is reduced, but ", name_of(s.collective), " has no operation");
  if (is_local(step.kind) && size_class(s, step.block) != size_class(s, step.source))
    return concat(block, " is made from block ", step.source, ", which has another size");
  if (s.collective == Collective::alltoall && step.kind != StepKind::send && step.block < s.size) {
    return block + " is written, but it is the caller's input";
  }
  return {};
}

std::string malformed(const std::vector<Schedule>& schedules) {
  if (schedules.empty()) return "no rank has a schedule";
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    if (std::string why = wrong_head(schedules, r); !why.empty()) return why;
    for (std::size_t k = 0; k < schedules[r].rounds.size(); ++k) {
      for (const Step& step : schedules[r].rounds[k]) {
        if (const std::string why = wrong_step(schedules[r], step); !why.empty()) return moment_of(r, k) + ": " + why;
      }
    }
  }
  return {};
}

// ---- promise of a collective

// Returns why a value does not hold every rank's part of `block`, each exactly once; empty if it
// does. `at_least_once` allows a part several times.
std::string wrong_parts(const Symbols& symbols, Symbols::Id value, int size, int block, bool at_least_once) {
  std::vector<bool> seen(static_cast<std::size_t>(size)), walked(at_least_once ? symbols.size() : 0);
  std::vector<Symbols::Id> todo{value};
  while (!todo.empty()) {
    const Symbols::Id id = todo.back();
    todo.pop_back();
    if (at_least_once && walked[id]) continue;
    if (at_least_once) walked[id] = true;
    const Symbols::Node& node = symbols.at(id);
    if (!node.leaf) {
      todo.insert(todo.end(), {node.a, node.b});
      continue;
    }
    if (node.b != static_cast<std::uint32_t>(block)) return concat("holds rank ", node.a, "'s block ", node.b);
    if (seen[node.a] && !at_least_once) return concat("holds rank ", node.a, "'s part more than once");
    seen[node.a] = true;
  }
  const auto lacking = std::find(seen.begin(), seen.end(), false);
  return lacking == seen.end() ? "" : concat("lacks rank ", lacking - seen.begin(), "'s part");
}

// Returns why a value is not made of the first `ranks` ranks' parts in their order; empty if it is.
// For scans.
std::string wrong_prefix(const Symbols& symbols, Symbols::Id value, int ranks, int block) {
  std::vector<Symbols::Id> todo{value};
  std::uint32_t next = 0;
  while (!todo.empty()) {
    const Symbols::Node& node = symbols.at(todo.back());
    todo.pop_back();
    if (!node.leaf) {
      todo.insert(todo.end(), {node.b, node.a});
      continue;
    }
    if (node.b != static_cast<std::uint32_t>(block)) return concat("holds rank ", node.a, "'s block ", node.b);
    if (node.a != next) return concat("holds rank ", node.a, "'s part where rank ", next, "'s belongs");
    ++next;
  }
  return static_cast<int>(next) == ranks ? "" : concat("ends with rank ", next - 1, "'s part");
}

// Compares final values with the promise of the collective.
class Judge {
 public:
  Judge(const std::vector<Schedule>& schedules, Symbols& symbols, const Values& values)
      : schedules_(schedules), symbols_(symbols), values_(values) {}

  std::string verdict() {
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      for (int b = 0; b < schedules_[r].blocks; ++b) {
        std::string why = wrong(schedules_[r], b, values_[r][static_cast<std::size_t>(b)]);
        if (!why.empty())
          return concat(moment_of(r, schedules_[r].rounds.size()), ": block ", b, " has a wrong result: it ", why);
      }
    }
    return {};
  }

 private:
  std::string wrong(const Schedule& s, int block, Symbols::Id value) {
    if (const auto origin = promised_origin(s, block)) return unequal(value, origin->rank, origin->block);
    switch (s.collective) {
      case Collective::reduce:
        return s.rank == s.root ? not_the_sum(s, block, value) : "";
      case Collective::reducescatter:
        return s.rank == block ? not_the_sum(s, block, value) : "";
      case Collective::scan:
      case Collective::exscan:
        return not_the_prefix(s, block, value);
      case Collective::barrier:
        return value == Symbols::undefined ? "is undefined" : wrong_parts(symbols_, value, s.size, block, true);
      default:
        break;
    }
    const Symbols::Id first = values_[0][static_cast<std::size_t>(block)];
    if (s.rank == 0 || value != first) {
      const std::string why = not_the_sum(s, block, value);
      if (!why.empty()) return why;
    }
    return value == first ? "" : "was reduced in a different operand order than on rank 0";
  }

  std::string unequal(Symbols::Id value, int rank, int block) {
    if (value == symbols_.leaf(rank, block)) return {};
    if (value == Symbols::undefined) return "was never assigned a value";
    const Symbols::Node& node = symbols_.at(value);
    return concat("holds rank ", node.a, "'s block ", node.b, ", not rank ", rank, "'s block ", block);
  }

  std::string not_the_sum(const Schedule& s, int block, Symbols::Id value) {
    if (value == Symbols::undefined) return "depends on memory that was never assigned a value";
    return wrong_parts(symbols_, value, s.size, block, false);
  }

  std::string not_the_prefix(const Schedule& s, int block, Symbols::Id value) {
    const int ranks = s.collective == Collective::scan ? s.rank + 1 : s.rank;
    if (ranks == 0) return {};
    if (value == Symbols::undefined) return "depends on memory that was never assigned a value";
    return wrong_prefix(symbols_, value, ranks, block);
  }

  const std::vector<Schedule>& schedules_;
  Symbols& symbols_;
  const Values& values_;
};

}  // namespace

bool encodes_once(const std::vector<Schedule>& schedules) {
  Symbols symbols;
  Values values = initial_values(schedules, symbols);
  if (!run_on_symbols(schedules, symbols, values, {.encoding = true}).empty()) return false;
  const auto blocks = static_cast<std::ptrdiff_t>(schedules.front().blocks);
  const bool twice_at_most = std::all_of(values.begin(), values.end(), [&](const auto& of_rank) {
    return std::all_of(of_rank.begin(), of_rank.begin() + blocks,
                       [&](Symbols::Id value) { return symbols.at(value).encodings <= 2; });
  });
  if (!twice_at_most) return false;
  if (!has_identical_results(schedules.front().collective)) return true;
  return std::all_of(values.begin(), values.end(), [&](const auto& of_rank) {
    return std::equal(of_rank.begin(), of_rank.begin() + blocks, values.front().begin());
  });
}

Proof prove(std::vector<Schedule>& schedules) {
  std::string why = malformed(schedules);
  if (!why.empty()) return {false, why};
  Symbols symbols;
  Values values = initial_values(schedules, symbols);
  why = run_on_symbols(schedules, symbols, values, {.ordered = &schedules});
  if (why.empty()) why = Judge(schedules, symbols, values).verdict();
  if (why.empty()) why = wrongly_declared(schedules);
  return {why.empty(), why};
}

History follow(const std::vector<Schedule>& schedules) {
  Symbols symbols;
  Values values = initial_values(schedules, symbols);
  History history;
  const std::string why = run_on_symbols(schedules, symbols, values, {.history = &history});
  if (!why.empty()) throw invalid(why);
  return history;
}

}  // namespace ringcomm
