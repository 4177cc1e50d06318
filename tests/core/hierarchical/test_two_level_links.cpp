// Tests guarantees of two levels besides correct results: one operand order, each byte at most once
// over a host's link, and refusals on every rank.
#include "host_ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using enum Collective;

// Reduces NaNs by max, which returns the first operand's NaN unchanged: the result must be the
// lowest rank's, on any host.
void lowest_rank_first(const std::vector<int>& host_of) {
  ChannelConfig config;
  config.segment_bytes = 1 << 10;
  on_hosts(host_of, config, [&](RankContext& context, Links&) {
    const std::size_t each = 700, all = each * static_cast<std::size_t>(context.size);
    const auto nan_of = [](int rank) { return 0x7fc00100u + static_cast<std::uint32_t>(rank); };
    for (const Collective collective : {allreduce, reduce, reducescatter}) {
      for (const std::string_view name : algorithm_names(collective)) {
        std::vector<std::uint32_t> input(all, nan_of(context.rank)), output(all, 0);
        Call call;
        call.collective = collective;
        call.op = Op::max;
        call.algorithm = "two_level:" + std::string(name);
        call.count = all;
        call.root = 1;
        if (collective == reducescatter) call.counts.assign(static_cast<std::size_t>(context.size), each);
        call.input = input.data();
        const bool takes = collective != reduce || context.rank == 1;
        call.output = takes ? output.data() : nullptr;
        context.channel.run(std::move(call), nullptr);
        for (std::size_t i = 0; takes && i < (collective == reducescatter ? each : all); ++i)
          CHECK(output[i] == nan_of(0));
      }
    }
  });
}

// Checks that a host's link carries each byte once.
void links_carry_the_least(const std::vector<int>& host_of) {
  ChannelConfig config;
  config.segment_bytes = 4 << 10;
  on_hosts(host_of, config, [&](RankContext& context, Links& links) {
    const Hosts hosts(host_of, context.rank);
    const auto others = static_cast<std::size_t>(hosts.number() - 1);
    for (const auto& [collective, name] : std::vector<std::pair<Collective, std::string>>{{broadcast, "chain"},
                                                                                          {broadcast, "binomial"},
                                                                                          {reduce, "binomial"},
                                                                                          {allgather, "ring"},
                                                                                          {allgather, "bruck"},
                                                                                          {reducescatter, "ring"},
                                                                                          {reducescatter, "circulant"},
                                                                                          {allreduce, "ring"},
                                                                                          {allreduce, "circulant"}}) {
      const bool per_rank = collective == allgather || collective == reducescatter;
      std::vector<std::size_t> counts;
      for (int rank = 0; per_rank && rank < context.size; ++rank)
        counts.push_back(9'973 / static_cast<std::size_t>(rank + 1));
      context.barrier.arrive_and_wait();
      if (context.rank == 0) links.reset();
      context.barrier.arrive_and_wait();
      Call call;
      std::vector<float> input(per_rank ? total(counts) : 9'973, 1), output(input.size());
      call.collective = collective;
      call.algorithm = "two_level:" + name;
      call.root = context.size - 1;
      call.count = input.size();
      if (per_rank) call.counts = counts;
      call.input = input.data();
      call.output = output.data();
      call.agreed = true;
      context.channel.run(std::move(call), nullptr);
      context.barrier.arrive_and_wait();
      const std::size_t nbytes = input.size() * sizeof(float);
      CHECK(links.all() == (collective == allreduce ? 2 : 1) * others * nbytes);
      if (collective == broadcast)
        CHECK(links.into(host_of[static_cast<std::size_t>(context.rank)]) ==
              (hosts.mine() == hosts.host_of(context.size - 1) ? 0 : nbytes));
      if (collective == allgather) {
        std::size_t own = 0;
        for (const int rank : hosts.here()) own += counts[static_cast<std::size_t>(rank)];
        CHECK(links.into(host_of[static_cast<std::size_t>(context.rank)]) == nbytes - own * sizeof(float));
      }
    }
  });
}

void refusals() {
  on_hosts({0, 0, 1, 1}, {}, [](RankContext& context, Links&) {
    for (const auto& [collective, name] :
         std::vector<std::pair<Collective, std::string>>{{broadcast, "two_level:ring"},
                                                         {allreduce, "two_level:chain"},
                                                         {alltoall, "two_level:direct"},
                                                         {barrier, "two_level:dissemination"}}) {
      float value = 1, result = 0;
      Call call;
      call.collective = collective;
      call.algorithm = name;
      call.input = &value;
      call.output = &result;
      if (collective == alltoall)
        call.counts = call.receive_counts = {0, 0, 0, 0};
      else
        call.count = 1;
      bool refused = false;
      try {
        context.channel.run(call, nullptr);
      } catch (const Error& error) {
        refused = error.kind() == ErrorKind::invalid;
      }
      CHECK(refused);
      call.collective = allreduce;
      call.algorithm = "two_level:ring";
      call.count = 1;
      context.channel.run(call, nullptr);
      CHECK(result == 4);
      call.op = Op::adasum;  // it needs complete vectors, so it runs on one level
      call.algorithm = "";
      CHECK(!context.channel.choose(call).name.starts_with(kTwoLevel));
    }
  });
}

}  // namespace

int main() {
  for (const auto& host_of : kHostLayouts) {
    lowest_rank_first(host_of);
    links_carry_the_least(host_of);
  }
  refusals();
  std::puts("two levels, order and links: passed");
}
