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
  bool equal_blocks;         // only for blocks of one size (Bruck): not for the v-forms
  std::string_view summary;  // one line: what it does and its cost
};

const std::vector<Algorithm>& algorithms();
std::vector<std::string_view> algorithm_names(Collective collective);
// nullptr if there is none. "butterfly" is its halving form here.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
// What a name stands for: the algorithm, or several of which the cheapest is meant ("butterfly": doubling for small
// buffers, halving-doubling for large; "": all there are). Empty if there is none of that name.
std::vector<const Algorithm*> algorithms_named(Collective collective, std::string_view name);

// The schedule of a built-in, made once and kept. Throws Error(invalid) naming the known algorithms.
std::shared_ptr<const Schedule> schedule_for(Collective collective, std::string_view name, int rank, int size,
                                             int root = 0);

}  // namespace ringcomm
