// Computes the time of a schedule's rounds on a topology, where messages of a round share links
// max-min fairly. All messages of a round start together, and the round ends with its last message.
#pragma once

#include <functional>

#include "schedule/profile.hpp"
#include "schedule/topology.hpp"

namespace ringcomm {

// Adds to a profile the transfer times of its rounds and the loads of the topology's links.
// `hosts`: host of each rank; empty: rank r is on host r. `within`: cost of a rank's link inside
// its host; this kind has number topology.kinds().size(). `share`: factor of all transfer times.
//
// If all messages of a round have one size, its time is the largest load of a link, which takes
// O(p * peers * links of a route) once for equal rounds, and less for an exchange between all
// ranks. Else the messages drain one after another (drain_time); above 2000 messages, the time is
// again the largest load, a lower bound. Returns false, and leaves the profile as it is, if the
// schedule has too many messages to count. Throws Error(invalid) if the topology is too small.
bool add_contention(Profile& profile, const std::function<Schedule(int)>& make, const Topology& topology,
                    const Placement& hosts, double within, double share = 1);

}  // namespace ringcomm
