// Schedules and prices for _schedules.pxi, with types that Cython can pass.
#pragma once

#include "base/error.hpp"
#include "codecs/wire_format.hpp"
#include "collectives/choose.hpp"
#include "schedule/contention.hpp"
#include "schedule/price.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline Step make_step(int kind, bool first, int peer, int block, int source, bool order_is_open) {
  return {static_cast<StepKind>(kind), first, peer, block, source, order_is_open};
}
inline Price price(const std::vector<Schedule>& schedules, std::size_t nbytes, const Network& network,
                   std::size_t segment, std::size_t window, const std::shared_ptr<const Topology>& topology) {
  const auto make = [&](int rank) { return schedules.at(static_cast<std::size_t>(rank)); };
  Profile profile = make_profile(make, static_cast<int>(schedules.size()));
  if (topology && !add_contention(profile, make, *topology, {}, network.within.beta / network.between.beta))
    throw invalid("the schedules have too many messages to count on a topology: use fewer ranks");
  return ringcomm::price(profile, nbytes, {segment, window}, network);
}
inline std::vector<Option> menu_options(Menu& menu, const std::string& name, std::size_t nbytes, bool equal_blocks,
                                        bool memory, std::size_t segment, std::size_t window, std::uint64_t wire) {
  const auto encoding = encoding_of(Wire::of(wire), DType::float32);
  return menu.options(name, nbytes, equal_blocks, memory, {segment, window}, encoding);
}
}  // namespace ringcomm_border
