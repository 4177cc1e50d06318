// Counts the messages on every link, in each kind of round.
#include "schedule/contention.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/error.hpp"
#include "schedule/fair_share.hpp"

namespace ringcomm {
namespace {

constexpr double kCounted = 1 << 27;    // maximum number of messages for which routes are followed
constexpr double kStored = 1 << 24;     // messages of schedules without a symmetry, at most
constexpr std::size_t kDrained = 2000;  // messages of a round that drain one after another, at most

struct Flow {
  int from, to;
  double blocks;
};

// Messages of one rank in a round: the number of blocks for each peer. With a symmetry, rank 0's
// describe the round.
using Messages = std::vector<std::pair<int, double>>;

Messages messages_of(const Round& round) {
  Messages found;
  for (const Step& step : round) {
    if (step.kind == StepKind::send) found.emplace_back(step.peer, 1);
  }
  std::ranges::sort(found);
  std::size_t kept = 0;
  for (const auto& message : found) {
    if (kept > 0 && found[kept - 1].first == message.first) {
      found[kept - 1].second += message.second;
    } else {
      found[kept++] = message;
    }
  }
  found.resize(kept);
  return found;
}

class Counter {
 public:
  Counter(const Topology& topology, const Placement& hosts, int size, double within, double share)
      : topology_(topology), size_(size), within_(within), share_(share),
        ranks_(static_cast<std::size_t>(topology.hosts())) {
    for (int rank = 0; rank < size; ++rank) {
      const int host = hosts.empty() ? rank : hosts[at(rank)];
      if (host < 0 || host >= topology.hosts())
        throw invalid("the topology has ", topology.hosts(), " hosts, but rank ", rank, " is on host ", host);
      places_.push_back({host, ranks_[at(host)]++});
    }
    const std::size_t links = topology.links().size() + 2 * at(size);
    loads_.resize(links);
    totals_.resize(links);
    spans_.resize(links);
  }

  // Returns the time of a round with these messages. `each` calls its argument with every flow.
  // Also adds `weight` times its loads to the totals, for rounds in `span`.
  template <class EachFlow>
  Transfer count(const EachFlow& each, double weight, Span span) {
    std::size_t longest = 0, flows = 0;
    double size = -1, alone = 0;
    bool equal = true;
    each([&](const Flow& flow) {
      find_route(flow);
      for (const int link : route_) {
        add(link, flow.blocks);
        alone = std::max(alone, flow.blocks * cost(link));
      }
      longest = std::max(longest, is_inside(flow) ? 0 : route_.size());
      equal &= size < 0 || size == flow.blocks;
      size = flow.blocks;
      ++flows;
    });
    Transfer transfer = busiest(weight, span);
    if (!equal && flows <= kDrained) transfer.time = share_ * drain(each);
    transfer.latency = latency(longest);
    transfer.alone = share_ * alone;
    return transfer;
  }

  // Returns the time of a round in which each rank sends one block to each other one; nothing if
  // its loads are not known without counting.
  bool exchange(double weight, Span span, Transfer& transfer) {
    const std::size_t longest = topology_.add_exchange(ranks_, loads_);
    if (longest == 0) return false;
    for (std::size_t link = 0; link < topology_.links().size(); ++link) {
      if (loads_[link] > 0) touched_.push_back(static_cast<int>(link));
    }
    for (int rank = 0; rank < size_; ++rank) {
      const int near = ranks_[at(places_[at(rank)].host)] - 1;
      for (const int link : {memory(rank), memory(rank) + 1}) {
        if (near > 0) add(link, near);
      }
    }
    double alone = 0;
    for (const int link : touched_) alone = std::max(alone, cost(link));
    transfer = busiest(weight, span);
    transfer.latency = latency(longest);
    transfer.alone = share_ * alone;
    return true;
  }

  // Returns the work of links over all rounds, without duplicates.
  std::vector<Profile::Shared> shared() const {
    std::set<std::tuple<int, double, std::size_t, std::size_t>> found;
    for (std::size_t link = 0; link < totals_.size(); ++link) {
      if (totals_[link] == 0) continue;
      const int index = static_cast<int>(link);
      found.emplace(kind(index), share_ * totals_[link] * cost(index), spans_[link].first, spans_[link].end);
    }
    std::vector<Profile::Shared> all;
    for (const auto& [kind, work, first, end] : found) all.push_back({work, {first, end}, kind});
    return all;
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int inside() const { return static_cast<int>(topology_.links().size()); }  // first link within hosts
  int memory(int rank) const { return inside() + 2 * rank; }
  double cost(int link) const { return link < inside() ? topology_.links()[at(link)].cost : within_; }
  int kind(int link) const {
    return link < inside() ? topology_.links()[at(link)].kind : static_cast<int>(topology_.kinds().size());
  }
  bool is_inside(const Flow& flow) const { return places_[at(flow.from)].host == places_[at(flow.to)].host; }

  double latency(std::size_t longest) const {
    return topology_.hop * static_cast<double>(longest - std::min(longest, topology_.shortest()));
  }

  void find_route(const Flow& flow) {
    route_.clear();
    if (is_inside(flow)) {
      route_ = {memory(flow.from), memory(flow.to) + 1};
    } else {
      topology_.route(places_[at(flow.from)], places_[at(flow.to)], route_);
    }
  }
  void add(int link, double blocks) {
    if (loads_[at(link)] == 0) touched_.push_back(link);
    loads_[at(link)] += blocks;
  }
  Transfer busiest(double weight, Span span) {
    Transfer most;
    for (const int link : touched_) {
      const double time = share_ * loads_[at(link)] * cost(link);
      if (time > most.time) most = {time, kind(link)};
      totals_[at(link)] += weight * loads_[at(link)];
      Span& used = spans_[at(link)];
      used.first = used.end == 0 ? span.first : std::min(used.first, span.first);
      used.end = std::max(used.end, span.end);
      loads_[at(link)] = 0;
    }
    touched_.clear();
    return most;
  }
  template <class EachFlow>
  double drain(const EachFlow& each) {
    std::unordered_map<int, std::size_t> numbers;  // indices of the links in use
    Routes routes;
    std::vector<double> sizes, costs;
    each([&](const Flow& flow) {
      find_route(flow);
      routes.emplace_back();
      for (const int link : route_) {
        const auto [entry, is_new] = numbers.try_emplace(link, costs.size());
        if (is_new) costs.push_back(cost(link));
        routes.back().push_back(entry->second);
      }
      sizes.push_back(flow.blocks);
    });
    return drain_time(routes, std::move(sizes), costs);
  }

  const Topology& topology_;
  int size_;
  double within_, share_;
  std::vector<int> ranks_;        // number on each host
  std::vector<Endpoint> places_;  // position of each rank
  std::vector<double> loads_;     // loads of the current round, by link
  std::vector<int> touched_;      // links with a load
  std::vector<double> totals_;    // loads of all rounds, by link
  std::vector<Span> spans_;
  std::vector<int> route_;
};

// Rounds with the same messages but for a common factor, which is the number of blocks.
struct Pattern {
  double weight = 0;  // sum of the factors
  Span span;
  std::vector<std::pair<std::size_t, double>> rounds;  // with their factors
};

using Rounds = std::vector<Transfer>;

bool count_symmetric(const Schedule& first, Counter& counter, Rounds& rounds) {
  std::map<Messages, Pattern> patterns;
  double messages = 0;
  for (std::size_t k = 0; k < first.rounds.size(); ++k) {
    Messages sent = messages_of(first.rounds[k]);
    if (sent.empty()) continue;
    const double factor = sent[0].second;
    for (auto& message : sent) message.second /= factor;
    const double followed = static_cast<double>(sent.size()) * first.size;
    const auto [entry, is_new] = patterns.try_emplace(std::move(sent));
    Pattern& pattern = entry->second;
    if (is_new) {
      messages += entry->first.size() + 1 == static_cast<std::size_t>(first.size) ? 0 : followed;
      pattern.span.first = k;
    }
    pattern.span.end = k + 1;
    pattern.weight += factor;
    pattern.rounds.emplace_back(k, factor);
  }
  if (messages > kCounted) return false;
  for (const auto& [sent, pattern] : patterns) {
    const bool all = sent.size() + 1 == static_cast<std::size_t>(first.size) &&
                     std::ranges::all_of(sent, [](const auto& message) { return message.second == 1; });
    Transfer transfer;
    if (!all || !counter.exchange(pattern.weight, pattern.span, transfer)) {
      if (static_cast<double>(sent.size()) * first.size > kCounted) return false;
      const auto each = [&](const auto& use) {
        for (int rank = 0; rank < first.size; ++rank) {
          for (const auto& [peer, blocks] : sent)
            use(Flow{rank, symmetric_peer(first.symmetry, peer, rank, first.size), blocks});
        }
      };
      transfer = counter.count(each, pattern.weight, pattern.span);
    }
    for (const auto& [round, factor] : pattern.rounds)
      rounds[round] = {transfer.time * factor, transfer.kind, transfer.latency, transfer.alone * factor};
  }
  return true;
}

bool count_each(const std::function<Schedule(int)>& make, int size, Counter& counter, Rounds& rounds) {
  if (static_cast<double>(rounds.size()) * size > 4 * kStored) return false;
  std::vector<std::vector<Flow>> flows(rounds.size());
  double stored = 0, steps = 0;
  for (int rank = 0; rank < size; ++rank) {
    const Schedule schedule = make(rank);
    for (std::size_t k = 0; k < schedule.rounds.size(); ++k) {
      steps += static_cast<double>(schedule.rounds[k].size());
      if (steps > kCounted) return false;
      for (const auto& [peer, blocks] : messages_of(schedule.rounds[k])) {
        flows.at(k).push_back({rank, peer, blocks});
        if (++stored > kStored) return false;
      }
    }
  }
  for (std::size_t k = 0; k < flows.size(); ++k) {
    const auto each = [&](const auto& use) { std::ranges::for_each(flows[k], use); };
    if (!flows[k].empty()) rounds[k] = counter.count(each, 1, {k, k + 1});
  }
  return true;
}

// Returns the transfers of all rounds as one work. In schedules with a symmetry, instances in
// flight share links fairly in the same round. So they end it together, and never use different
// links at the same time. On two racks, halving 4 MB took 36 % longer than the busiest link works.
Profile::Shared lockstep(const Rounds& rounds) {
  std::map<int, double> works;
  double sum = 0;
  for (const Transfer& round : rounds) {
    works[round.kind] += round.time;
    sum += round.time;
  }
  const auto most = std::ranges::max_element(works, {}, [](const auto& work) { return work.second; });
  return {sum, {0, rounds.size()}, most == works.end() ? -1 : most->first};
}

}  // namespace

bool add_contention(Profile& profile, const std::function<Schedule(int)>& make, const Topology& topology,
                    const Placement& hosts, double within, double share) {
  Counter counter(topology, hosts, profile.size, within, share);
  Rounds rounds(profile.rounds);
  const Schedule first = make(0);
  const bool counted = first.symmetry != Symmetry::none ? count_symmetric(first, counter, rounds)
                                                        : count_each(make, profile.size, counter, rounds);
  if (!counted) return false;
  std::vector<Profile::Run> runs;
  std::size_t round = 0;
  for (const Profile::Run& run : profile.runs) {
    for (std::size_t k = 0; k < run.rounds; ++k, ++round) {
      if (k > 0 && runs.back().transfer == rounds[round]) {
        ++runs.back().rounds;
      } else {
        runs.push_back({1, run.loads, rounds[round]});
      }
    }
  }
  profile.runs = std::move(runs);
  profile.shared = counter.shared();
  if (first.symmetry != Symmetry::none && profile.rounds > 0) profile.shared.push_back(lockstep(rounds));
  profile.contended = true;
  return true;
}

}  // namespace ringcomm
