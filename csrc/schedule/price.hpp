// What a call costs, on the links that there are, run as the executor runs it: cut into segments, several in flight.
#pragma once

#include <cstddef>

#include "codecs/wire_format.hpp"
#include "schedule/network.hpp"
#include "schedule/profile.hpp"

namespace ringcomm {

// How a buffer is run: instances of `segment` bytes (0: one for all), at most `window` of them at a time.
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
  std::size_t rounds = 0;    // of one instance
};

// `nbytes` is the whole buffer (allgather, alltoall: all blocks together).
Price price(const Profile& profile, std::size_t nbytes, const Cut& cut, const Network& network);

struct Priced {
  Cut cut;
  Price price;
};

// The cut to run with, of those that the executor may use. A smaller window, and a segment near the usual one, are
// worth a few percent: what is in flight beyond need only queues up in front of links.
// `given`: a segment or window that is fixed already; 0 where it is not. With an encoding, segments are as long as they
// would be of data that is as long as what is sent: it is messages that have a good length.
Priced cheapest(const Profile& profile, std::size_t nbytes, const Network& network, const Cut& given = {0, 0},
                const Encoding& encoding = {});

struct HostRanks {
  int lanes = 1, most = 1;  // ranks of the hosts that have the fewest, and the most
};

// The same for a collective on two levels: the ranks of a host bring together what it sends, in the memory that they
// share; the profile's schedule (of one rank of each host) takes each lane's slice across; and they take it out. These
// three as a pipeline. The cut is a slice's.
Priced cheapest_two_level(const Profile& between_hosts, HostRanks on_host, std::size_t nbytes, const Network& network,
                          const Cut& given = {0, 0}, const Encoding& encoding = {});

}  // namespace ringcomm
