// Which algorithms there are, by collective and name. Built-ins are listed in registry.cpp; users add theirs.
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
  std::string_view summary;   // one line: what it does and its cost
  bool automatic = false;     // may be chosen for calls that ask for none
  bool any_root = false;      // of a collective without a root: whoever asks for it may choose the rank in the middle
  bool equal_blocks = false;  // only for blocks of one size (Bruck): not for the v-forms
  // What a rank gives goes straight to who sums it up, and a sum straight to who is to have it: no partial sum travels,
  // so nothing would be encoded more than once each (schedule/prove.hpp, encodes_once: for any number of ranks).
  bool direct = false;
  std::string_view alias{};  // a name for several, of which the cheapest is meant; empty: none
  bool rooted() const { return has_root(collective) || any_root; }
};

// "two_level:tree:3" in its parts. An algorithm's name, or an alias ("butterfly": doubling for small buffers,
// halving-doubling for large).
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
std::string known_names(Collective collective);  // for messages: aliases and roots too
// What a name stands for: the algorithm, or an alias' several; "": all that may be chosen. Empty if there is none.
std::vector<const Algorithm*> algorithms_named(Collective collective, const AlgorithmName& name);
// nullptr if there is none. Of an alias' algorithms the last.
const Algorithm* find_algorithm(Collective collective, const AlgorithmName& name);

// The schedule of a built-in. `root` counts where the collective, or the algorithm, has one. Throws Error(invalid) for
// ranks that are none.
Schedule schedule_of(const Algorithm& algorithm, int rank, int size, int root);
// Of the name's own root, if it gives one. Throws Error(invalid) naming the known algorithms.
std::shared_ptr<const Schedule> schedule_for(Collective collective, const AlgorithmName& name, int rank, int size,
                                             int root = 0);

}  // namespace ringcomm
