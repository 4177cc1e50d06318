// Describes the load that a schedule puts on ranks and links, independent of the size of the data.
// A profile is made once and priced often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "schedule/network.hpp"
#include "schedule/schedule.hpp"

namespace ringcomm {

// Load of one host. `out` and `in` are sums over its ranks, which share the link; all other fields
// are its busiest rank's.
struct Load {
  std::uint64_t out = 0, in = 0;       // blocks over the host's link
  std::uint64_t gives = 0, gets = 0;   // blocks to and from ranks of the same host
  std::uint64_t sends = 0, takes = 0;  // messages
  std::uint64_t reduced = 0;           // blocks
  bool operator==(const Load&) const = default;
  bool covers(const Load& other) const;  // at least equal in every field
};

struct Span {
  std::size_t first = 0, end = 0;  // rounds
  bool operator==(const Span&) const = default;
};

// The messages of a round on a topology (contention.hpp): until the last one ends.
struct Transfer {
  double time = 0;     // for blocks of one byte, in units of Network::between.beta
  int kind = -1;       // kind of the busiest link; -1: none
  double latency = 0;  // seconds beyond those of the shortest route
  double alone = 0;    // `time` of the longest message if it shared no link
  bool operator==(const Transfer&) const = default;
};

struct Profile {
  // Consecutive rounds with equal loads. None of these loads covers another.
  struct Run {
    std::size_t rounds;
    std::vector<Load> loads;
    Transfer transfer{};  // if `contended`
  };
  // Load of one host over all rounds. The spans are the rounds in which it sends over its link,
  // receives over it, and does anything.
  struct Usage {
    Load total;
    Span out, in, any;
    bool operator==(const Usage&) const = default;
  };

  // Work of one link of a topology over all rounds, or of links that instances use in lockstep, in
  // the units of Transfer::time.
  struct Shared {
    double work;
    Span span;  // rounds in which it carries messages
    int kind;
  };

  Collective collective = Collective::allreduce;
  int size = 1;
  std::size_t blocks = 1;  // blocks of the schedule's data
  std::size_t parts = 1;   // blocks that make up the buffer (alltoall has each block twice)
  std::size_t rounds = 0;
  std::vector<Run> runs;
  std::vector<Usage> hosts;    // without duplicates
  bool contended = false;      // transfers are those on a topology; loads of links are not used
  std::vector<Shared> shared;  // without duplicates
  bool one_way = false;        // some rank only sends or only receives: instances need not wait for each other
  std::size_t lag = 0;         // as in Schedule
  std::uint64_t messages = 0, sent = 0, reduced = 0;  // messages and blocks of the busiest rank
  std::uint64_t peers = 0;                            // most distinct peers that one rank sends to
};

// Builds the profile from `make(rank)`, which returns a rank's schedule. With a declared symmetry
// or declared busiest ranks it calls `make` for few ranks. The result is then exact if every rank
// has a separate host, or if all hosts have equally many consecutive ranks. Memory: O(rounds of a
// rank) and O(ranks).
Profile make_profile(const std::function<Schedule(int)>& make, int size, const Placement& hosts = {});

}  // namespace ringcomm
