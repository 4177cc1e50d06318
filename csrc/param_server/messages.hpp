// What ranks that share no memory send each other about a store. A request is a Head, its ranges, the elements of a
// gradient and those of the weights that it is of; an answer is a Head and the elements of a result. Ranks run the same
// binary on one kind of machine: numbers travel as they lie.
#pragma once

#include <cstdint>
#include <limits>

#include "param_server/shard.hpp"

namespace ringcomm::store {

// When a request is due: once every worker's clock is so far, and so many gathered updates have been made. `clock` of
// Clocks::kLost: all have finished, and nothing is gathered that is not applied.
struct Due {
  std::int64_t clock = std::numeric_limits<std::int64_t>::min();
  std::uint64_t group = 0;
};

struct Head {
  bool answer = false;
  Rule rule = Rule::get;
  Arrival arrival = Arrival::applied;                     // of an answer
  bool gathers = false;                                   // the elements are of a gradient that is gathered, in parts:
  bool begins = true, ends = true;                        // the first, the last
  bool gradient = false, pulled = false, result = false;  // which arrays there are
  std::uint32_t ranges = 0;
  std::uint64_t shard = 0;
  std::uint64_t number = 0;   // of the sender's requests to this server, from 1
  std::uint64_t step = 0;     // of the gradient that is gathered
  std::int64_t clock = -1;    // the sender's, once this is done; negative: as before
  Due due;                    // of an answer: `group` updates have been made
  std::uint64_t version = 0;  // of an answer: of the shard, before
  RuleOptions options;
};

}  // namespace ringcomm::store
