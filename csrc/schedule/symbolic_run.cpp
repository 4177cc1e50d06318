// Implements the symbolic run: it matches the messages of all ranks and applies each round's writes
// to symbols.
#include "schedule/symbolic_run.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "schedule/promise.hpp"

namespace ringcomm {
namespace {

constexpr int kEncoder = -1;  // in place of a block: the symbol represents the rank's encoder

// A message of one round to or from one peer, with all its blocks.
struct Message {
  std::size_t peer;
  bool moved = false;
  std::size_t used = 0;  // received blocks that have been written
  std::vector<int> blocks{};
  std::vector<Symbols::Id> carried{};  // values when the round began
  bool reduces = false;
};

struct RankState {
  std::size_t round = 0, waiting = 0;  // messages of the round that are not transferred yet
  std::vector<Message> out, in;        // sorted by peer
};

Message* find(std::vector<Message>& messages, std::size_t peer) {
  const auto at = std::lower_bound(messages.begin(), messages.end(), peer,
                                   [](const Message& m, std::size_t wanted) { return m.peer < wanted; });
  return at != messages.end() && at->peer == peer ? &*at : nullptr;
}

class Machine {
 public:
  Machine(const std::vector<Schedule>& schedules, Symbols& symbols, Values& values, const SymbolicRun& wanted)
      : schedules_(schedules), symbols_(symbols), values_(values), wanted_(wanted), ranks_(schedules.size()) {
    for (const auto& blocks : values) encoded_.emplace_back(blocks.size());
    if (wanted_.history) wanted_.history->resize(ranks_.size());
  }

  std::string run() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) post(r);
    while (!posted_.empty() && why_.empty()) {
      const std::size_t rank = posted_.back();
      posted_.pop_back();
      move_what_can(rank);
    }
    return why_.empty() ? stuck() : why_;
  }

 private:
  const Round& round_of(std::size_t rank) const { return schedules_[rank].rounds[ranks_[rank].round]; }
  bool finished(std::size_t rank) const { return ranks_[rank].round >= schedules_[rank].rounds.size(); }

  // Posts the messages of this rank's next round that has any. Does the local work of the rounds
  // before it.
  void post(std::size_t rank) {
    RankState& state = ranks_[rank];
    for (;; ++state.round) {
      if (wanted_.history) record(rank, (*wanted_.history)[rank].emplace_back());
      if (finished(rank)) return;
      state.out = gather(rank, false);
      state.in = gather(rank, true);
      state.waiting = state.out.size() + state.in.size();
      if (state.waiting > 0) {
        posted_.push_back(rank);
        return;
      }
      write(rank);
    }
  }

  void record(std::size_t rank, std::vector<double>& moment) {
    for (std::size_t b = 0; b < values_[rank].size(); ++b) {
      moment.push_back(completeness(schedules_[rank], static_cast<int>(b), values_[rank][b], symbols_));
    }
  }

  // Marks a value with the rank that encoded it.
  void encode(std::size_t rank, std::size_t block) {
    if (!wanted_.encoding || encoded_[rank][block]) return;
    encoded_[rank][block] = true;
    Symbols::Id& value = values_[rank][block];
    if (value != Symbols::undefined) value = symbols_.encoded(symbols_.leaf(static_cast<int>(rank), kEncoder), value);
  }

  std::vector<Message> gather(std::size_t rank, bool taken) {
    std::vector<const Step*> steps;
    for (const Step& step : round_of(rank)) {
      if (taken ? receives(step.kind) : step.kind == StepKind::send) steps.push_back(&step);
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step* a, const Step* b) { return a->peer < b->peer; });
    std::vector<Message> messages;
    for (const Step* step : steps) {
      const auto peer = static_cast<std::size_t>(step->peer);
      if (messages.empty() || messages.back().peer != peer) messages.push_back({peer});
      messages.back().blocks.push_back(step->block);
      if (!taken) encode(rank, static_cast<std::size_t>(step->block));
      if (!taken) messages.back().carried.push_back(values_[rank][static_cast<std::size_t>(step->block)]);
    }
    return messages;
  }

  void move_what_can(std::size_t rank) {
    for (Message& out : ranks_[rank].out) {
      Message* const in = find(ranks_[out.peer].in, rank);
      if (!out.moved && in && !in->moved) move(rank, out, out.peer, *in);
    }
    for (Message& in : ranks_[rank].in) {
      Message* const out = find(ranks_[in.peer].out, rank);
      if (!in.moved && out && !out->moved) move(in.peer, *out, rank, in);
    }
    // A rank posts again only here, so that no list changes during the loops above.
    for (const std::size_t done : std::exchange(completed_, {})) {
      write(done);
      ++ranks_[done].round;
      ranks_[done].out.clear();
      ranks_[done].in.clear();
      post(done);
    }
  }

  void move(std::size_t from, Message& out, std::size_t to, Message& in) {
    if (why_.empty()) why_ = misfit(from, out, to, in);
    if (!why_.empty()) return;
    in.carried = out.carried;
    in.moved = out.moved = true;
    for (const std::size_t end : {from, to}) {
      if (--ranks_[end].waiting == 0) completed_.push_back(end);
    }
  }

  std::string misfit(std::size_t from, const Message& out, std::size_t to, const Message& in) const {
    if (out.blocks.size() != in.blocks.size()) {
      return concat(moment_of(to, ranks_[to].round), ": receives ", in.blocks.size(), " blocks (the first is block ",
                    in.blocks.front(), ") from rank ", from, ", which sends ", out.blocks.size(), " in its round ",
                    ranks_[from].round);
    }
    for (std::size_t i = 0; i < in.blocks.size(); ++i) {
      if (size_class(schedules_[from], out.blocks[i]) == size_class(schedules_[to], in.blocks[i])) continue;
      return concat(moment_of(to, ranks_[to].round), ": receives block ", in.blocks[i], " from rank ", from,
                    ", which sends block ", out.blocks[i], ", of another size, in its round ", ranks_[from].round);
    }
    return {};
  }

  void write(std::size_t rank) {
    auto& blocks = values_[rank];
    const Round& round = round_of(rank);
    for (std::size_t i = 0; i < round.size(); ++i) {
      const Step& step = round[i];
      if (step.kind == StepKind::send) continue;
      auto& target = blocks[static_cast<std::size_t>(step.block)];
      Symbols::Id incoming;
      const bool whole = receives(step.kind) || encoded_[rank][static_cast<std::size_t>(step.source)];
      if (receives(step.kind)) {
        Message& message = *find(ranks_[rank].in, static_cast<std::size_t>(step.peer));
        incoming = message.carried[message.used++];
      } else {
        incoming = blocks[static_cast<std::size_t>(step.source)];
      }
      const bool replaces = step.kind == StepKind::receive || step.kind == StepKind::copy;
      if (wanted_.ordered && step.order_is_open) {
        (*wanted_.ordered)[rank].rounds[ranks_[rank].round][i].incoming_first =
            symbols_.at(incoming).lowest < symbols_.at(target).lowest;
      }
      target = replaces              ? incoming
               : step.incoming_first ? symbols_.join(incoming, target)
                                     : symbols_.join(target, incoming);
      encoded_[rank][static_cast<std::size_t>(step.block)] = replaces && whole;
    }
  }

  // Describes a waiting message, if any. Prefers a message to or from a peer that has ended, then
  // the earliest round.
  std::string stuck() const {
    const Message* worst = nullptr;
    std::size_t worst_rank = 0;
    bool sends = false;
    const auto consider = [&](std::size_t rank, const Message& m, bool out) {
      const auto urgency = [&](std::size_t r, const Message& x) {
        return std::pair(!finished(x.peer), ranks_[r].round);
      };
      if (m.moved || (worst && urgency(rank, m) >= urgency(worst_rank, *worst))) return;
      worst = &m;
      worst_rank = rank;
      sends = out;
    };
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (finished(r)) continue;
      for (const Message& m : ranks_[r].in) consider(r, m, false);
      for (const Message& m : ranks_[r].out) consider(r, m, true);
    }
    if (!worst) return {};
    return concat(
        moment_of(worst_rank, ranks_[worst_rank].round), ": waits forever for rank ", worst->peer,
        sends ? " to receive block " : " to send block ", worst->blocks.front(), "; rank ", worst->peer,
        finished(worst->peer) ? " has finished" : concat(" is stuck in its round ", ranks_[worst->peer].round));
  }

  const std::vector<Schedule>& schedules_;
  Symbols& symbols_;
  Values& values_;
  const SymbolicRun wanted_;
  std::vector<std::vector<bool>> encoded_;  // by rank and block: unchanged since it was sent or received
  std::vector<RankState> ranks_;
  std::vector<std::size_t> posted_, completed_;
  std::string why_;
};

}  // namespace

std::string moment_of(std::size_t rank, std::size_t round) { return concat("rank ", rank, ", round ", round); }

std::string run_on_symbols(const std::vector<Schedule>& schedules, Symbols& symbols, Values& values,
                           const SymbolicRun& wanted) {
  return Machine(schedules, symbols, values, wanted).run();
}

}  // namespace ringcomm
