// A second implementation of schedules, independent of the prover. It first numbers the messages of
// the complete run, then delivers them in random order. Each rank keeps a copy of all its blocks
// from the start of a round. Values are of any type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "schedule/registry.hpp"
#include "schedule/schedule.hpp"

namespace simulation {

using ringcomm::Schedule;
using ringcomm::Step;
using ringcomm::StepKind;

inline bool is_take(const Step& s) { return s.kind == StepKind::receive || s.kind == StepKind::reduce; }
inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

inline std::vector<Schedule> all_ranks(const ringcomm::Algorithm& algorithm, int size, int root = 0) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < size; ++r) schedules.push_back(algorithm.make(r, size, root));
  return schedules;
}

// One end of a message: the round, and the blocks in the order listed.
struct End {
  std::size_t rank, round;
  std::vector<int> blocks;
};

// Returns ends[peer]: this rank's messages to (or from) peer, in the order of rounds.
inline std::vector<std::vector<End>> ends_of(const Schedule& s, bool takes) {
  std::vector<std::vector<End>> ends(at(s.size));
  for (std::size_t k = 0; k < s.rounds.size(); ++k) {
    for (const Step& step : s.rounds[k]) {
      if (takes ? !is_take(step) : step.kind != StepKind::send) continue;
      auto& list = ends[at(step.peer)];
      if (list.empty() || list.back().round != k) list.push_back({at(s.rank), k, {}});
      list.back().blocks.push_back(step.block);
    }
  }
  return ends;
}

template <class Value>
class Simulator {
 public:
  // Runs the schedules. fits(target, incoming) returns whether the sizes allow the incoming value
  // in the target; join(first, second) is the operation.
  template <class Fits, class Join>
  static bool run(const std::vector<Schedule>& schedules, std::vector<std::vector<Value>>& blocks, std::mt19937& random,
                  const Fits& fits, const Join& join) {
    Simulator s(schedules, blocks);
    if (!s.pair_up()) return false;
    std::shuffle(s.messages_.begin(), s.messages_.end(), random);
    for (std::size_t r = 0; r < schedules.size(); ++r) s.begin(r, fits, join);
    while (!s.messages_.empty() && s.fitting_) {
      if (!s.move_some(fits, join)) return false;  // the remaining messages would wait for ever
    }
    return s.fitting_;
  }

 private:
  struct Message {
    End from, to;
  };
  struct Rank {
    std::size_t round = 0;
    std::vector<int> left;                  // messages of each round that have not been delivered
    std::vector<Value> snapshot;            // all blocks at the start of the round
    std::vector<std::vector<Value>> inbox;  // by peer
  };

  Simulator(const std::vector<Schedule>& schedules, std::vector<std::vector<Value>>& blocks)
      : schedules_(schedules), blocks_(blocks), ranks_(schedules.size()) {}

  bool pair_up() {
    std::vector<std::vector<std::vector<End>>> sends, takes;
    for (const Schedule& s : schedules_) {
      sends.push_back(ends_of(s, false));
      takes.push_back(ends_of(s, true));
      ranks_[at(s.rank)].left.resize(s.rounds.size());
      ranks_[at(s.rank)].inbox.resize(schedules_.size());
    }
    for (std::size_t a = 0; a < schedules_.size(); ++a) {
      for (std::size_t b = 0; b < schedules_.size(); ++b) {
        if (sends[a][b].size() != takes[b][a].size()) return false;
        for (std::size_t i = 0; i < sends[a][b].size(); ++i) {
          const Message m{sends[a][b][i], takes[b][a][i]};
          if (m.from.blocks.size() != m.to.blocks.size()) return false;
          ++ranks_[a].left[m.from.round];
          ++ranks_[b].left[m.to.round];
          messages_.push_back(m);
        }
      }
    }
    return true;
  }

  // Visits the messages once in shuffled order; delivers those whose both ends are in their rounds.
  template <class Fits, class Join>
  bool move_some(const Fits& fits, const Join& join) {
    std::vector<Message> kept;
    for (const Message& m : messages_) {
      Rank &from = ranks_[m.from.rank], &to = ranks_[m.to.rank];
      if (from.round != m.from.round || to.round != m.to.round) {
        kept.push_back(m);
        continue;
      }
      for (std::size_t i = 0; i < m.to.blocks.size(); ++i) {
        const Value& value = from.snapshot[at(m.from.blocks[i])];
        fitting_ = fitting_ && fits(to.snapshot[at(m.to.blocks[i])], value);
        to.inbox[m.from.rank].push_back(value);
      }
      --from.left[m.from.round];
      --to.left[m.to.round];
      if (!fitting_) return true;
      begin_next(m.from.rank, fits, join);
      begin_next(m.to.rank, fits, join);
    }
    const bool moved = kept.size() < messages_.size();
    messages_ = std::move(kept);
    return moved;
  }

  // If all messages of the rank's round are delivered, writes its results and begins the next
  // round. Repeats while rounds have nothing to wait for.
  template <class Fits, class Join>
  void begin_next(std::size_t r, const Fits& fits, const Join& join) {
    Rank& rank = ranks_[r];
    while (rank.round < rank.left.size() && rank.left[rank.round] == 0) {
      write(r, fits, join);
      ++rank.round;
      rank.snapshot = blocks_[r];
      for (auto& box : rank.inbox) box.clear();
    }
  }
  template <class Fits, class Join>
  void begin(std::size_t r, const Fits& fits, const Join& join) {
    ranks_[r].snapshot = blocks_[r];
    begin_next(r, fits, join);
  }

  template <class Fits, class Join>
  void write(std::size_t r, const Fits& fits, const Join& join) {
    Rank& rank = ranks_[r];
    std::vector<std::size_t> read(rank.inbox.size());
    for (const Step& step : schedules_[r].rounds[rank.round]) {
      if (step.kind == StepKind::send) continue;
      Value& target = blocks_[r][at(step.block)];
      const Value incoming =
          is_take(step) ? rank.inbox[at(step.peer)][read[at(step.peer)]++] : blocks_[r][at(step.source)];
      fitting_ = fitting_ && fits(target, incoming);
      if (!fitting_) return;
      if (step.kind == StepKind::receive || step.kind == StepKind::copy) {
        target = incoming;
      } else
        target = step.incoming_first ? join(incoming, target) : join(target, incoming);
    }
  }

  const std::vector<Schedule>& schedules_;
  std::vector<std::vector<Value>>& blocks_;
  std::vector<Rank> ranks_;
  std::vector<Message> messages_;
  bool fitting_ = true;
};

}  // namespace simulation
