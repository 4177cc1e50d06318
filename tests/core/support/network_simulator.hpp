// Simulates the cost of a schedule event by event, independently of the pricer. Every rank has its
// own link, which takes beta per byte in each direction. Messages are sent one after another in the
// order of posting, and arrive alpha after their last byte. A rank posts a message every gap, and
// reduces received data at gamma per byte, one message at a time. Segments run as in RunSchedule:
// `window` at a time, each in rounds.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/network.hpp"
#include "schedule/schedule.hpp"

namespace simulation {

class NetworkSimulator {
 public:
  NetworkSimulator(const std::vector<ringcomm::Schedule>& schedules, double block_bytes, std::size_t segments,
                   std::size_t window, const ringcomm::Network& network)
      : schedules_(schedules), block_(block_bytes), segments_(segments), window_(window), net_(network),
        ranks_(schedules.size()) {}

  double seconds() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].instances.resize(segments_);
      at(0, [this, r] { open(r); });
    }
    while (!events_.empty()) {
      const auto [time, number, event] = events_.top();
      events_.pop();
      now_ = time;
      event();
    }
    return now_;
  }

 private:
  struct Instance {
    std::size_t round = 0, pending = 0;
    bool begun = false;
    std::map<std::size_t, std::vector<std::size_t>> early;  // by round: peers whose messages arrived before it
  };
  struct Rank {
    std::vector<Instance> instances;
    std::size_t oldest = 0, opened = 0;
    double out = 0, in = 0, poster = 0, processor = 0;  // when each is free, in seconds
  };
  struct Exchange {
    std::vector<std::pair<std::size_t, double>> sends;  // peer, blocks
    std::map<std::size_t, double> takes, reduces;       // by peer: blocks
    double combined = 0;
  };
  using Event = std::tuple<double, std::size_t, std::function<void()>>;
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
    }
  };

  void at(double time, std::function<void()> event) { events_.emplace(time, number_++, std::move(event)); }

  Exchange exchange(std::size_t rank, std::size_t round) const {
    Exchange it;
    for (const ringcomm::Step& step : schedules_[rank].rounds[round]) {
      const auto peer = static_cast<std::size_t>(std::max(0, step.peer));
      switch (step.kind) {
        case ringcomm::StepKind::send: {
          auto found = std::find_if(it.sends.begin(), it.sends.end(), [&](const auto& s) { return s.first == peer; });
          if (found == it.sends.end()) found = it.sends.insert(it.sends.end(), {peer, 0.0});
          found->second += 1;
          break;
        }
        case ringcomm::StepKind::reduce:
          it.reduces[peer] += 1;
          [[fallthrough]];
        case ringcomm::StepKind::receive:
          it.takes[peer] += 1;
          break;
        case ringcomm::StepKind::combine:
          it.combined += 1;
          break;
        case ringcomm::StepKind::copy:
          break;
      }
    }
    return it;
  }

  void open(std::size_t r) {
    Rank& rank = ranks_[r];
    while (rank.oldest < rank.opened && rank.instances[rank.oldest].round == rounds(r)) ++rank.oldest;
    while (rank.opened < segments_ && rank.opened < rank.oldest + window_) begin(r, rank.opened++);
  }
  std::size_t rounds(std::size_t r) const { return schedules_[r].rounds.size(); }

  void begin(std::size_t r, std::size_t s) {
    Instance& one = ranks_[r].instances[s];
    one.begun = true;
    if (one.round == rounds(r)) {
      at(now_, [this, r] { open(r); });
      return;
    }
    const Exchange it = exchange(r, one.round);
    one.pending = it.sends.size() + it.takes.size() + 1;
    for (std::size_t k = 0; k < it.sends.size(); ++k) {
      Rank& rank = ranks_[r];
      const double post = std::max(now_, rank.poster);
      rank.poster = post + net_.between.gap;
      at(post, [this, r, s, round = one.round, to = it.sends[k].first, blocks = it.sends[k].second] {
        transmit(r, s, round, to, blocks);
      });
    }
    const auto early = std::move(one.early[one.round]);
    for (const std::size_t from : early) take(r, s, from);
    compute(r, s, it.combined);  // the pending one
  }

  void transmit(std::size_t r, std::size_t s, std::size_t round, std::size_t to, double blocks) {
    const double time = blocks * block_ * net_.between.beta;
    const double start = std::max(now_, ranks_[r].out), sent = start + time;
    ranks_[r].out = sent;
    const double there = std::max(ranks_[to].in, start) + time;
    ranks_[to].in = there;
    at(sent, [this, r, s] { complete(r, s); });
    at(there + net_.between.alpha, [this, r, s, round, to] {
      Instance& one = ranks_[to].instances[s];
      const std::size_t due = round_of(to, r, index_of(r, to, round));
      if (one.begun && one.round == due) {
        take(to, s, r);
      } else {
        one.early[due].push_back(r);
      }
    });
  }

  // index_of() returns the index of r's message to `to` in this round among all of r's messages to
  // it. round_of() returns the round in which `to` receives the message with this index.
  std::size_t index_of(std::size_t r, std::size_t to, std::size_t round) const {
    std::size_t index = 0;
    for (std::size_t k = 0; k < round; ++k) index += deals(r, k, to, true);
    return index;
  }
  std::size_t round_of(std::size_t to, std::size_t from, std::size_t index) const {
    for (std::size_t k = 0; k < rounds(to); ++k) {
      if (deals(to, k, from, false) && index-- == 0) return k;
    }
    return rounds(to);
  }
  bool deals(std::size_t r, std::size_t k, std::size_t peer, bool sending) const {
    const auto& round = schedules_[r].rounds[k];
    return std::any_of(round.begin(), round.end(), [&](const ringcomm::Step& step) {
      const bool sends = step.kind == ringcomm::StepKind::send;
      return step.peer == static_cast<int>(peer) && sends == sending;
    });
  }

  void take(std::size_t r, std::size_t s, std::size_t from) {
    const Exchange it = exchange(r, ranks_[r].instances[s].round);
    const auto reduced = it.reduces.find(from);
    compute(r, s, reduced == it.reduces.end() ? 0 : reduced->second);
  }
  void compute(std::size_t r, std::size_t s, double blocks) {
    Rank& rank = ranks_[r];
    if (blocks > 0) rank.processor = std::max(rank.processor, now_) + blocks * block_ * net_.gamma;
    at(blocks > 0 ? rank.processor : now_, [this, r, s] { complete(r, s); });
  }
  void complete(std::size_t r, std::size_t s) {
    Instance& one = ranks_[r].instances[s];
    if (--one.pending > 0) return;
    ++one.round;
    begin(r, s);
  }

  const std::vector<ringcomm::Schedule>& schedules_;
  double block_;
  std::size_t segments_, window_;
  const ringcomm::Network& net_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::size_t number_ = 0;
  double now_ = 0;
};

}  // namespace simulation
