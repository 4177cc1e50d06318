// Predicts the cost of a call on the given links, as the executor runs it: cut into segments, with
// several in flight. The choice of algorithms and cuts depends on it.
#pragma once

#include <cstddef>

#include "codecs/wire_format.hpp"
#include "schedule/network.hpp"
#include "schedule/profile.hpp"

namespace ringcomm {

// Parameters of a run: instances of `segment` bytes (0: one for all), at most `window` of them at a
// time.
struct Cut {
  std::size_t segment = 0;
  std::size_t window = 1;
  bool operator==(const Cut&) const = default;
};

struct Price {
  double seconds = 0;
  std::size_t messages = 0;  // sent by the busiest rank, over all segments
  double bytes = 0;          // sent by the busiest rank, as encoded
  double reduced = 0;        // bytes reduced by the busiest rank
  std::size_t rounds = 0;    // rounds of one instance
  int kind = -1;             // on a topology, the kind of links that take most of the time; -1: none does
};

// Prices a buffer of `nbytes` in total (allgather, alltoall: all blocks together).
Price price(const Profile& profile, std::size_t nbytes, const Cut& cut, const Network& network);

struct Priced {
  Cut cut;
  Price price;
};

// Returns the cheapest cut among those that the executor may use. It prefers a smaller window, and
// a segment near the usual size, unless a larger one saves a few percent: more instances in flight
// only queue in front of links. `given` holds a segment or window that is fixed already; 0: not
// fixed. With an encoding, segments are chosen for data of the encoded length, because the length
// of messages matters to links.
Priced cheapest(const Profile& profile, std::size_t nbytes, const Network& network, const Cut& given = {0, 0},
                const Encoding& encoding = {});

// A host's ranks. Each host cuts the buffer into `lanes` slices. One rank per slice, which "has the
// lane", exchanges the slice with the other hosts.
struct HostRanks {
  int lanes = 1, most = 1;  // ranks of the smallest and of the largest host
};

// Returns the cheapest cut of a collective on two levels. The ranks of a host combine their data in
// shared memory. The profile's schedule (of one rank per host) transfers each lane's slice between
// hosts. The ranks then copy the result out. The three stages form a pipeline. The cut is that of a
// slice.
Priced cheapest_two_level(const Profile& between_hosts, HostRanks on_host, std::size_t nbytes, const Network& network,
                          const Cut& given = {0, 0}, const Encoding& encoding = {});

}  // namespace ringcomm
