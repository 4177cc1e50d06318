// Implements CallContext, the state that the calls of a channel share.
#include "collectives/context.hpp"

#include "base/rank_text.hpp"
#include "base/text.hpp"
#include "transport/counted.hpp"

namespace ringcomm {

CallContext::CallContext(std::shared_ptr<Transport> transport_, std::vector<int> peers_, int me_, TagStream tags_,
                         std::shared_ptr<Node> node_, int slot, ChannelConfig config_)
    : config(std::move(config_)), account(config.account),
      transport(std::make_shared<CountedTransport>(transport_, account.sent, account.received)),
      peers(std::move(peers_)), me(me_), tags(tags_), node(std::move(node_)),
      epochs(node && size() > 1 ? std::make_unique<Epochs>(*node, slot) : nullptr),
      hosts(epochs && !on_one_host() ? Hosts(host_of(), me) : Hosts()),
      departures(*transport_, peers, me, config.goodbye_tag) {  // goodbyes belong to no call, and so are not counted
  if (hosts.number() > 1) epochs->set_group_ranks(hosts.here());
}

void CallContext::book(Collective collective, const Choice& choice, std::uint64_t calls) {
  account.book(collective, choice, calls, memory_moved());
}

std::vector<int> CallContext::host_of() const {
  std::vector<int> hosts_of;
  if (config.hosts.empty()) return hosts_of;
  for (const int peer : peers) hosts_of.push_back(config.hosts.at(static_cast<std::size_t>(peer)));
  return hosts_of;
}

StallReport::Text CallContext::stalled_in(std::string_view call, std::string_view kind) const {
  const std::vector<int> behind = epochs ? epochs->behind() : std::vector<int>{};
  const std::string late = behind.empty() ? "at least one rank" : rank_text(behind);
  return {call.empty() || call == kind ? std::string(kind) : concat(kind, " '", call, "'"),
          late + (behind.size() > 1 ? " have" : " has") + " not called it yet"};
}

void CallContext::publish_state(std::uint32_t state) {
  epochs->mine().state.store(state, std::memory_order_release);
  epochs->wake();
}

void CallContext::end_after(const Error& error) {
  if (!error.fatal() && error.kind() != ErrorKind::left) return;
  if (!broken) broken = error;
  // ranks of this host may wait for a message that only this rank would have received
  if (error.fatal() && hosts.number() > 1) publish_state(2);
}

}  // namespace ringcomm
