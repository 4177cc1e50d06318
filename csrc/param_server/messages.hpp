// The messages about a store between ranks that share no memory. A request is a Head, its ranges,
// the elements of a gradient, and the weights on which it was computed. An answer is a Head and the
// elements of a result. All ranks run the same binary on the same kind of machine, so numbers are
// sent as stored.
#pragma once

#include <cstdint>
#include <limits>

#include "param_server/shard.hpp"

namespace ringcomm::store {

// The condition for a request to run: every worker has reached `clock`, and `group` gathered
// updates have been made. If `clock` is Clocks::kLost: all workers have finished, and all gathered
// gradients have been applied.
struct Due {
  std::int64_t clock = std::numeric_limits<std::int64_t>::min();
  std::uint64_t group = 0;
};

struct Head {
  bool answer = false;
  Rule rule = Rule::get;
  Arrival arrival = Arrival::applied;                     // in an answer
  bool gathers = false;                                   // the elements are part of a gradient to gather
  bool begins = true, ends = true;                        // first, last segment of a request
  bool gradient = false, pulled = false, result = false;  // arrays that the message has
  std::uint32_t ranges = 0;
  std::uint64_t shard = 0;
  std::uint64_t number = 0;   // counts the sender's requests to this server, from 1
  std::uint64_t step = 0;     // step of the gathered gradient
  std::int64_t clock = -1;    // the sender's clock once this request is done; negative: unchanged
  Due due;                    // in an answer: `group` updates have been made
  std::uint64_t version = 0;  // in an answer: version of the shard before the request
  // in an answer: number of segments that the client may have in flight to this server
  std::uint32_t window = 0;
  RuleOptions options;
};

}  // namespace ringcomm::store
