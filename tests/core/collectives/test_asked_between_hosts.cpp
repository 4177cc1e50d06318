// Tests requested algorithms with ranks on several hosts: their roots, custom algorithms, and the
// algorithm that a joined rank runs.
#include <algorithm>
#include <optional>

#include "engine_ranks.hpp"
#include "host_ranks.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using Values = std::vector<std::int32_t>;

constexpr std::size_t kCount = 5'003;

const std::vector<std::vector<int>> kLayouts{{0, 0, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}, {2, 2, 2, 0, 0, 1}};

Call allreduce_of(Values& data, const std::string& algorithm) {
  Call call;
  call.dtype = DType::int32;
  call.algorithm = algorithm;
  call.input = call.output = data.data();
  call.count = data.size();
  return call;
}

Values run(RankContext& context, const std::string& algorithm) {
  Values data(kCount);
  for (std::size_t i = 0; i < kCount; ++i) data[i] = context.rank * 1000 + static_cast<std::int32_t>(i);
  context.channel.run(allreduce_of(data, algorithm), nullptr);
  return data;
}

void check_sum(const Values& data, int size) {
  for (std::size_t i = 0; i < kCount; ++i)
    CHECK(data[i] == 500 * size * (size - 1) + size * static_cast<std::int32_t>(i));
}

// Sends everything to the root, so that its host receives all other ranks' data: from each rank, or
// on two levels from each host. The name of an algorithm may select two levels too.
void roots(const std::vector<int>& host_of) {
  const auto host = [&](int rank) { return host_of[static_cast<std::size_t>(rank)]; };
  on_hosts(host_of, {}, [&](RankContext& context, Links& links) {
    for (const bool two_levels : {false, true}) {
      for (const char* const algorithm : {"master_worker:", "tree:"}) {
        for (int root = 0; root < context.size; ++root) {
          const std::string name = (two_levels ? "two_level:" : "") + std::string(algorithm) + std::to_string(root);
          Values data(kCount);
          const Choice& choice = context.channel.choose(allreduce_of(data, name));
          CHECK(choice.root == root && (choice.name == name || choice.name == "two_level:" + name));
          const bool by_hosts = choice.route == Route::two_levels;
          CHECK(by_hosts == choice.name.starts_with("two_level:") && (by_hosts || choice.route == Route::schedule));
          context.barrier.arrive_and_wait();
          if (context.rank == 0) links.reset();
          context.barrier.arrive_and_wait();
          check_sum(run(context, name), context.size);
          context.barrier.arrive_and_wait();
          if (std::string_view(algorithm) != "master_worker:") continue;
          const auto there = std::count(host_of.begin(), host_of.end(), host(root));
          const auto hosts = static_cast<std::size_t>(*std::max_element(host_of.begin(), host_of.end())) + 1;
          const std::size_t senders = by_hosts ? hosts - 1 : host_of.size() - static_cast<std::size_t>(there);
          const std::size_t data_bytes = senders * kCount * sizeof(std::int32_t);
          CHECK(links.into(host(root)) >= data_bytes && links.into(host(root)) < data_bytes + 4096);
        }
      }
    }
  });
}

// Runs a custom algorithm. It has no second level, runs among all ranks of all hosts, and is
// refused on every rank.
void own(const std::vector<int>& host_of) {
  const auto own = std::make_shared<CustomAlgorithms>();
  const int size = static_cast<int>(host_of.size());
  for (int rank = 0; rank < size; ++rank) own->add("mine#1f", schedule_for(Collective::allreduce, "ring", rank, size));
  ChannelConfig config;
  config.custom_algorithms = own;
  on_hosts(host_of, config, [](RankContext& context, Links&) {
    Values data(kCount);
    const Choice& choice = context.channel.choose(allreduce_of(data, "mine#1f"));
    CHECK(choice.route == Route::schedule && choice.shown() == "mine");
    check_sum(run(context, "mine#1f"), context.size);
    for (const char* const unknown : {"mine#2", "two_level:mine#1f", "tree:99"}) {
      std::optional<Error> error;
      try {
        run(context, unknown);
      } catch (const Error& caught) {
        error = caught;
      }
      CHECK(error && error->kind() == ErrorKind::invalid);
      CHECK(context.same_text(error->what()));
    }
    check_sum(run(context, "mine#1f"), context.size);
  });
}

// Joins on one rank: it runs the algorithm that the other ranks request, by name or by default,
// with no data.
void joined(const std::vector<int>& host_of, int who, const std::string& fallback) {
  const int size = static_cast<int>(host_of.size());
  const auto hub = make_threads_hub(size);
  const auto nodes = nodes_on(host_of);
  EngineConfig config;
  config.channel.hosts = host_of;
  config.channel.algorithm = fallback;
  on_ranks(size, [&](int rank) {
    Rank r(hub, rank, size, config, true, nodes[static_cast<std::size_t>(rank)]);
    for (const char* const name : {"two_level:butterfly_doubling", "two_level:tree:2", "tree:1", ""}) {
      for (const Op op : {Op::sum, Op::max}) {
        if (rank == who) continue;
        Values data(kCount, rank + 1);
        NamedRequest request = named("asked " + std::string(name) + (op == Op::sum ? "" : " max"), data);
        request.call.algorithm = name;
        request.call.op = op;
        CHECK(!r.outcome(r.engine->submit(0, std::move(request))));
        check_data(data, op == Op::sum ? size * (size + 1) / 2 - (who + 1) : who == size - 1 ? size - 1 : size);
      }
    }
    CHECK(!r.outcome(r.engine->join({0}).front()));
    r.engine->leave();
  });
}

}  // namespace

int main() {
  for (const auto& host_of : kLayouts) {
    roots(host_of);
    own(host_of);
  }
  for (int who = 0; who < 4; ++who) joined({0, 0, 1, 1}, who, "");
  for (const char* const fallback : {"two_level:ring", "ring"}) joined({0, 1, 1}, 2, fallback);
  std::puts("asked for, between hosts: all passed");
}
