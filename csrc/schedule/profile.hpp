// What a schedule asks of ranks and links, whatever the size of the data: made once, priced often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "schedule/network.hpp"
#include "schedule/schedule.hpp"

namespace ringcomm {

// Of one host: blocks over its link are its ranks' together; all else is its busiest rank's.
struct Load {
  std::uint64_t out = 0, in = 0;       // blocks over the host's link
  std::uint64_t gives = 0, gets = 0;   // blocks to and from ranks of its own host
  std::uint64_t sends = 0, takes = 0;  // messages
  std::uint64_t reduced = 0;           // blocks
  bool operator==(const Load&) const = default;
  bool covers(const Load& other) const;  // at least as much of everything
};

struct Span {
  std::size_t first = 0, end = 0;  // rounds
  bool operator==(const Span&) const = default;
};

struct Profile {
  // Consecutive rounds that are alike. Of their loads each is more than the others in something.
  struct Run {
    std::size_t rounds;
    std::vector<Load> loads;
  };
  // Of one host over all rounds, and when it first and last sends over its link, takes from it, does anything.
  struct Usage {
    Load total;
    Span out, in, any;
    bool operator==(const Usage&) const = default;
  };

  Collective collective = Collective::allreduce;
  int size = 1;
  std::size_t blocks = 1;  // of the data
  std::size_t parts = 1;   // blocks that make up the buffer (alltoall has each twice)
  std::size_t rounds = 0;
  std::vector<Run> runs;
  std::vector<Usage> hosts;  // different ones
  bool one_way = false;      // a rank only sends, or only takes: instances follow one another without waiting
  std::size_t lag = 0;       // as Schedule has it
  std::uint64_t messages = 0, sent = 0, reduced = 0;  // messages and blocks of the busiest rank
  std::uint64_t peers = 0;                            // different ones that a rank sends to, at most
};

// `make(rank)` gives a rank's schedule. A declared symmetry, or declared busiest ranks, spare most of the ranks: it is
// then called for few, which is exact if every rank has a host of its own, or all hosts have equally many, one after
// another. Memory: O(rounds of a rank) and O(ranks).
Profile make_profile(const std::function<Schedule(int)>& make, int size, const Placement& hosts = {});

}  // namespace ringcomm
