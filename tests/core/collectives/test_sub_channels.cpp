// Tests calls on a channel's ranks of one host, of one lane, and of all hosts, in turns.
#include <numeric>

#include "host_ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

static Call sum_of(std::vector<std::int64_t>& values) {
  Call call;
  call.dtype = DType::int64;
  call.input = call.output = values.data();
  call.count = values.size();
  call.agreed = true;
  return call;
}

static void in_turns(RankContext& context, const Hosts& hosts, std::size_t count, bool make_late) {
  if (make_late) {
    std::vector<std::int64_t> all(count, 1);
    context.channel.run(sum_of(all), nullptr);
    CHECK(all == std::vector<std::int64_t>(count, context.size));
  }
  const SubChannels& sub = context.channel.sub_channels();
  const std::vector<int> lane = hosts.lane(hosts.local_rank(context.rank));
  CHECK(sub.host->size() == hosts.lanes() && sub.host->rank() == hosts.local_rank(context.rank));
  CHECK(sub.lane->size() == hosts.number() && sub.lane->rank() == hosts.mine());
  for (int turn = 0; turn < 300; ++turn) {
    std::vector<std::int64_t> here(count, context.rank + turn), across(here), everybody(here);
    sub.host->run(sum_of(here), nullptr);
    CHECK(here == std::vector<std::int64_t>(
                      count, std::accumulate(hosts.here().begin(), hosts.here().end(), turn * hosts.lanes())));
    sub.lane->run(sum_of(across), nullptr);
    CHECK(across == std::vector<std::int64_t>(count, std::accumulate(lane.begin(), lane.end(), turn * hosts.number())));
    if (turn % 7 > 0) continue;
    context.channel.run(sum_of(everybody), nullptr);
    CHECK(everybody == std::vector<std::int64_t>(count, context.size * (context.size - 1) / 2 + context.size * turn));
  }
}

// Checks that closing a channel on one rank ends the calls of its host that wait for that rank.
static void ended(RankContext& context, const Hosts& hosts) {
  const SubChannels& sub = context.channel.sub_channels();
  std::vector<std::int64_t> values(10, 1);
  if (hosts.local_rank(context.rank) == 0) {
    context.channel.fail(Error(ErrorKind::transport, "a lane is broken"));
    return;
  }
  try {
    sub.host->run(sum_of(values), nullptr);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::peer_lost || error.kind() == ErrorKind::left);
  }
}

int main() {
  for (const std::vector<int>& host_of : kHostLayouts) {
    const Hosts first(host_of, 0);
    // the hosts have different numbers of ranks
    if (first.number() * first.lanes() != static_cast<int>(host_of.size())) continue;
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
      if (count > 1000 && host_of.size() > 4) continue;
      on_hosts(host_of, {}, [&](RankContext& context, Links&) {
        in_turns(context, Hosts(host_of, context.rank), count, count == 1000);
      });
    }
    if (first.lanes() > 1)
      on_hosts(host_of, {}, [&](RankContext& context, Links&) { ended(context, Hosts(host_of, context.rank)); });
  }
  std::puts("ok");
}
