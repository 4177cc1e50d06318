// Builds profiles from schedules. It counts the loads of each host and round, and uses declared
// symmetries to look at few ranks.
#include "schedule/profile.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace ringcomm {
namespace {

constexpr std::size_t kAffordable = std::size_t{1} << 18;  // steps; for more, the profile counts only a few hosts

constexpr std::array kOfLink{&Load::out, &Load::in};
constexpr std::array kOfRank{&Load::gives, &Load::gets, &Load::sends, &Load::takes, &Load::reduced};

void add(Load& host, const Load& rank) {
  for (const auto field : kOfLink) host.*field += rank.*field;
  for (const auto field : kOfRank) host.*field = std::max(host.*field, rank.*field);
}

void sum(Load& total, const Load& load) {
  for (const auto field : kOfLink) total.*field += load.*field;
  for (const auto field : kOfRank) total.*field += load.*field;
}

void note(Span& span, std::size_t round) {
  if (span.end == 0) span.first = round;
  span.end = round + 1;
}

// Keeps only the loads that are not covered by another load.
void keep(std::vector<Load>& loads, const Load& load) {
  if (load == Load{}) return;
  for (const Load& other : loads) {
    if (other.covers(load)) return;
  }
  std::erase_if(loads, [&](const Load& other) { return load.covers(other); });
  loads.push_back(load);
}

// Counts the distinct peers of a round. `seen` holds, per rank, the last round that counted it.
class PeerCount {
 public:
  explicit PeerCount(int size) : seen_(static_cast<std::size_t>(size), 0) {}
  void next_round() { ++round_; }
  bool is_new(int peer) { return std::exchange(seen_[static_cast<std::size_t>(peer)], round_) != round_; }

 private:
  std::vector<std::size_t> seen_;
  std::size_t round_ = 0;
};

class Builder {
 public:
  Builder(const std::function<Schedule(int)>& make, int size, const Placement& hosts)
      : make_(make), size_(size), hosts_(hosts), first_(make(0)), to_(size), from_(size), ever_(size) {}

  Profile build() {
    out_.collective = first_.collective;
    out_.size = size_;
    out_.lag = static_cast<std::size_t>(first_.lag);
    out_.blocks = static_cast<std::size_t>(std::max(1, first_.blocks));
    out_.parts = first_.collective == Collective::alltoall ? static_cast<std::size_t>(size_) : out_.blocks;
    std::map<int, std::vector<int>> ranks;  // by host
    for (int rank = 0; rank < size_; ++rank) ranks[host_of(rank)].push_back(rank);
    for (const int host : hosts_that_matter(ranks)) add_host(ranks[host]);
    out_.rounds = rounds_.size();
    for (std::vector<Load>& loads : rounds_) append(std::move(loads));
    return std::move(out_);
  }

 private:
  int host_of(int rank) const { return hosts_.empty() ? rank : hosts_[static_cast<std::size_t>(rank)]; }

  std::vector<int> hosts_that_matter(const std::map<int, std::vector<int>>& ranks) const {
    std::vector<int> some = first_.symmetry != Symmetry::none ? std::vector<int>{0} : first_.busiest;
    std::size_t steps = first_.rounds.size();
    for (const Round& round : first_.rounds) steps += round.size();
    const bool exact = static_cast<int>(ranks.size()) == size_;  // each rank has a separate host
    const bool all = some.empty() || (!exact && steps * static_cast<std::size_t>(size_) <= kAffordable);
    std::vector<int> hosts;
    if (all) {
      for (const auto& [host, members] : ranks) hosts.push_back(host);
    }
    for (const int rank : all ? std::vector<int>{} : some) hosts.push_back(host_of(rank));
    std::sort(hosts.begin(), hosts.end());
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    return hosts;
  }

  void add_host(const std::vector<int>& ranks) {
    std::vector<Load> loads;
    for (const int rank : ranks) {
      if (rank == 0 || first_.symmetry != Symmetry::none) {
        add_rank(first_, rank, loads);
      } else {
        add_rank(make_(rank), rank, loads);
      }
    }
    if (rounds_.size() < loads.size()) rounds_.resize(loads.size());
    Profile::Usage usage;
    for (std::size_t k = 0; k < loads.size(); ++k) {
      keep(rounds_[k], loads[k]);
      sum(usage.total, loads[k]);
      if (loads[k].out > 0) note(usage.out, k);
      if (loads[k].in > 0) note(usage.in, k);
      if (loads[k] != Load{}) note(usage.any, k);
    }
    const auto same = std::find(out_.hosts.begin(), out_.hosts.end(), usage);
    if (same == out_.hosts.end()) out_.hosts.push_back(usage);
  }

  void add_rank(const Schedule& schedule, int rank, std::vector<Load>& loads) {
    if (loads.size() < schedule.rounds.size()) loads.resize(schedule.rounds.size());
    Load total;
    std::uint64_t sent = 0;
    peers_ = 0;
    ever_.next_round();
    for (std::size_t k = 0; k < schedule.rounds.size(); ++k) {
      const Load load = count(schedule.rounds[k], rank, rank - schedule.rank);
      add(loads[k], load);
      sum(total, load);
      sent += load.out + load.gives;
    }
    out_.one_way |= (total.sends == 0) != (total.takes == 0);
    out_.peers = std::max(out_.peers, peers_);
    out_.messages = std::max(out_.messages, total.sends);
    out_.sent = std::max(out_.sent, sent);
    out_.reduced = std::max(out_.reduced, total.reduced);
  }

  // Returns the step's peer in the schedule that the symmetry derives for rank `by` from rank 0's.
  int peer_of(const Step& step, int by) const {
    return by == 0 ? step.peer : symmetric_peer(first_.symmetry, step.peer, by, size_);
  }

  Load count(const Round& round, int rank, int by) {
    to_.next_round();
    from_.next_round();
    Load load;
    for (const Step& step : round) {
      if (computes(step.kind)) ++load.reduced;
      if (is_local(step.kind)) continue;
      const int peer = peer_of(step, by);
      const bool near = host_of(peer) == host_of(rank), sends = step.kind == StepKind::send;
      ++(sends ? (near ? load.gives : load.out) : (near ? load.gets : load.in));
      if (sends) {
        load.sends += to_.is_new(peer);
        peers_ += ever_.is_new(peer);
      } else {
        load.takes += from_.is_new(peer);
      }
    }
    return load;
  }

  void append(std::vector<Load> loads) {
    if (!out_.runs.empty() && out_.runs.back().loads == loads) {
      ++out_.runs.back().rounds;
    } else {
      out_.runs.push_back({1, std::move(loads)});
    }
  }

  const std::function<Schedule(int)>& make_;
  int size_;
  const Placement& hosts_;
  Schedule first_;
  PeerCount to_, from_, ever_;
  std::vector<std::vector<Load>> rounds_;
  std::uint64_t peers_ = 0;  // distinct peers of the current rank
  Profile out_;
};

}  // namespace

bool Load::covers(const Load& other) const {
  const auto as_much = [&](std::uint64_t Load::* field) { return this->*field >= other.*field; };
  return std::ranges::all_of(kOfLink, as_much) && std::ranges::all_of(kOfRank, as_much);
}

Profile make_profile(const std::function<Schedule(int)>& make, int size, const Placement& hosts) {
  return Builder(make, size, hosts).build();
}

}  // namespace ringcomm
