// Computes the limits of inline data from the model of the network.
#include "collectives/consistency/inline_data.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "collectives/consistency/piece_exchange.hpp"
#include "host_collectives/payload.hpp"

namespace ringcomm {
namespace {

// Returns the bytes available to each of `senders` ranks or hosts, for data that is reduced.
std::size_t room(std::size_t senders) {
  const bool merged = PieceExchange::can_merge(senders);
  return std::min(kLongestPiece, (merged ? kMergedTogether : kPayloadsTogether) / senders);
}

// Returns the number of pieces that each of `senders` ranks or hosts receives.
double pieces_received(std::size_t senders) {
  return PieceExchange::can_merge(senders) ? std::log2(static_cast<double>(senders)) : static_cast<double>(senders - 1);
}

// Returns the largest size for which inline data is faster. It is at most `room`, and at least a
// size that adds no measurable time to a message. An all-reduce of small data takes 2 log2(h)
// rounds of messages between h hosts, and moves 2 (h-1)/h times the data over a host's link. Inline
// data takes no additional round, and moves the data `received` times.
std::size_t worth(std::size_t room, const Terms& terms, double hosts, double received) {
  constexpr std::size_t kUnnoticed = 64;
  const std::set<int> different(terms.hosts.begin(), terms.hosts.end());
  const LinkModel& link = different.size() == 1 ? terms.network.within : terms.network.between;
  const double saved = 2 * std::ceil(std::log2(hosts)) * link.alpha;
  const double byte = (received - 2 * (hosts - 1) / hosts) * link.beta;  // additional cost of each byte
  if (byte * static_cast<double>(room) <= saved) return room;
  return std::min(room, std::max(kUnnoticed, static_cast<std::size_t>(saved / byte)));
}

}  // namespace

InlineLimits most_by_ranks(const Terms& terms, std::size_t size) {
  const std::set<int> different(terms.hosts.begin(), terms.hosts.end());
  const double ranks = static_cast<double>(size),
               hosts = different.size() < 2 ? ranks : static_cast<double>(different.size()), on_host = ranks / hosts;
  return {worth(room(size), terms, hosts, pieces_received(size) * on_host),
          worth(kPayloadsTogether / size, terms, hosts, (ranks - 1) * on_host)};
}

// Computes limits between leaders. Data that is only moved must reach each host by every route, so
// only the room limits its size.
InlineLimits most_by_hosts(const Terms& terms, const Hosts& hosts) {
  std::size_t ranks = 0;
  for (int host = 0; host < hosts.number(); ++host) ranks += hosts.of(host).size();
  const auto number = static_cast<std::size_t>(hosts.number());
  return {worth(room(number), terms, hosts.number(), pieces_received(number)),
          std::min(kLongestPiece, kPayloadsTogether / ranks)};
}

}  // namespace ringcomm
