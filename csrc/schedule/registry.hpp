// Lists the built-in algorithms by collective and name, and makes their schedules. Custom
// algorithms are in collectives/custom_algorithms.hpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.hpp"

namespace ringcomm {

struct Algorithm {
  Collective collective;
  std::string_view name;
  Schedule (*make)(int rank, int size, int root);
  std::string_view summary;   // one line: method and cost
  bool automatic = false;     // may be chosen, without a topology, for calls that name no algorithm
  bool any_root = false;      // for collectives without a root: the caller may choose the central rank
  bool equal_blocks = false;  // requires blocks of one size, so it cannot serve calls with counts (alltoallv)
  // Each rank sends its data directly to the rank that reduces it, and sums go directly to their
  // destination. No partial sum is sent, so an encoder runs at most once on data and once on sums.
  // Holds for any number of ranks (encodes_once in schedule/prove.hpp).
  bool direct = false;
  std::string_view alias{};  // a name for several algorithms, which selects the cheapest; empty: none
  bool rooted() const { return has_root(collective) || any_root; }
};

// A name, for example "two_level:tree:3", split into its parts. `name` is an algorithm's name or an
// alias ("butterfly": doubling for small buffers, halving-doubling for large).
inline constexpr std::string_view kTwoLevel = "two_level:";
struct AlgorithmName {
  AlgorithmName(std::string_view text);                                              // NOLINT: texts are names
  AlgorithmName(const std::string& text) : AlgorithmName(std::string_view(text)) {}  // NOLINT
  AlgorithmName(const char* text) : AlgorithmName(std::string_view(text)) {}         // NOLINT
  bool two_levels = false;
  std::string_view name;
  int root = -1;  // a rank of the group; -1: none given
};

const std::vector<Algorithm>& algorithms();
std::vector<std::string_view> algorithm_names(Collective collective);
std::string known_names(Collective collective);  // for messages; includes aliases and roots
// Returns the algorithms that a name means: one, or all of an alias; for "", all automatic ones, or
// `every` one. The result is empty if the name is unknown.
std::vector<const Algorithm*> algorithms_named(Collective collective, const AlgorithmName& name, bool every = false);
// Returns nullptr if the name is unknown. For an alias, returns its last algorithm.
const Algorithm* find_algorithm(Collective collective, const AlgorithmName& name);

// Makes the schedule of a built-in algorithm. `root` is used if the collective, or the algorithm,
// has one. Throws Error(invalid) for ranks out of range.
Schedule schedule_of(const Algorithm& algorithm, int rank, int size, int root);
// Makes the schedule for a name. A root in the name overrides `root`. Throws Error(invalid) with
// the known names.
std::shared_ptr<const Schedule> schedule_for(Collective collective, const AlgorithmName& name, int rank, int size,
                                             int root = 0);

}  // namespace ringcomm
