// Compiles a schedule into a program, and determines which encodings are sent again.
#include "executor/program.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringcomm {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// Use of a block in the rounds so far. Rounds are numbered from 1 here. 0 is the time before the
// first round; kNone means never.
struct BlockUse {
  // The last round that uses the block, the last one before that, and the last round that sends it.
  std::uint32_t touched = kNone, touched_before = kNone, sent = kNone;
  std::uint32_t touches = 0;  // steps of round `touched` that use the block
};

struct PeerUse {
  std::uint32_t send = kNone, receive = kNone;  // indices of this round's messages; kNone: no message
};

class Compiler {
 public:
  Compiler(const Schedule& schedule, bool blocks_change_first, Program& out)
      : schedule_(schedule), out_(out), blocks_(static_cast<std::size_t>(schedule.blocks) + schedule.temps.size()),
        peers_(static_cast<std::size_t>(schedule.size)) {
    if (blocks_change_first) {
      for (BlockUse& use : blocks_) use.touched = 0;
    }
    std::size_t steps = 0;
    for (const Round& round : schedule.rounds) steps += round.size();
    out_.rounds.reserve(schedule.rounds.size());
    out_.messages.reserve(steps);
    out_.pieces.reserve(steps);
    out_.writes.reserve(steps);
  }

  void add(const Round& round) {
    ++number_;
    now_ = {};
    for (const Step& step : round) look_at(step);
    now_.first_send = static_cast<std::uint32_t>(out_.messages.size());
    now_.first_sent_piece = static_cast<std::uint32_t>(out_.pieces.size());
    now_.first_write = static_cast<std::uint32_t>(out_.writes.size());
    group(round, true);
    now_.first_receive = static_cast<std::uint32_t>(out_.messages.size());
    now_.first_received_piece = static_cast<std::uint32_t>(out_.pieces.size());
    group(round, false);
    now_.end = static_cast<std::uint32_t>(out_.messages.size());
    now_.end_piece = static_cast<std::uint32_t>(out_.pieces.size());
    for (const Step& step : round) enter(step);
    now_.end_write = static_cast<std::uint32_t>(out_.writes.size());
    for (std::uint32_t m = now_.first_send; m < now_.end; ++m) peer(out_.messages[m].peer) = {};
    out_.rounds.push_back(now_);
  }

 private:
  BlockUse& block(std::int32_t index) { return blocks_[static_cast<std::size_t>(index)]; }
  PeerUse& peer(std::int32_t index) { return peers_[static_cast<std::size_t>(index)]; }

  void touch(std::int32_t index) {
    BlockUse& use = block(index);
    if (use.touched != number_) {
      use.touched_before = use.touched;
      use.touched = number_;
      use.touches = 0;
    }
    ++use.touches;
  }

  void look_at(const Step& step) {
    const auto blocks = static_cast<std::int32_t>(blocks_.size());
    const auto known_block = [blocks](std::int32_t index) { return index >= 0 && index < blocks; };
    const bool known_peer = is_local(step.kind) || (step.peer >= 0 && step.peer < schedule_.size);
    if (!known_peer || !known_block(step.block) || (is_local(step.kind) && !known_block(step.source))) {
      throw invalid("algorithm '", schedule_.algorithm, "', rank ", schedule_.rank, ", round ", number_ - 1,
                    ": a step names a peer or block that does not exist");
    }
    touch(step.block);
    if (is_local(step.kind)) touch(step.source);
    if (step.kind == StepKind::send) block(step.block).sent = number_;
  }

  // Creates the round's messages in one direction, one per peer, and reserves their pieces.
  void group(const Round& round, bool sending) {
    const std::size_t first = out_.messages.size();
    for (const Step& step : round) {
      if (is_local(step.kind) || (step.kind == StepKind::send) != sending) continue;
      std::uint32_t& message = sending ? peer(step.peer).send : peer(step.peer).receive;
      if (message == kNone) {
        message = static_cast<std::uint32_t>(out_.messages.size());
        out_.messages.push_back({step.peer, 0, 0});
      }
      ++out_.messages[message].last;  // counts the pieces; the next loop sets `last`
    }
    auto next = static_cast<std::uint32_t>(out_.pieces.size());
    for (std::size_t m = first; m < out_.messages.size(); ++m) {
      const std::uint32_t count = out_.messages[m].last;
      out_.messages[m].first = out_.messages[m].last = next;  // `last` advances as pieces are entered
      next += count;
    }
    out_.pieces.resize(next);
  }

  void enter(const Step& step) {
    if (step.kind == StepKind::send) {
      Message& message = out_.messages[peer(step.peer).send];
      out_.pieces[message.last++] = step.block;
    } else if (receives(step.kind)) {
      const std::uint32_t index = peer(step.peer).receive;
      Message& message = out_.messages[index];
      const BlockUse& use = block(step.block);
      message.plain &= step.kind == StepKind::receive && use.touches == 1;
      message.untouched &= use.touched_before != number_ - 1;
      const std::uint32_t piece = message.last++;
      out_.pieces[piece] = step.block;
      write(step, index - now_.first_receive, piece - now_.first_received_piece);
    } else {
      write(step, 0, 0);
    }
  }

  void write(const Step& step, std::uint32_t message, std::uint32_t piece) {
    const bool guarded = block(step.block).sent == number_;
    const std::int32_t source = is_local(step.kind) ? step.source : -1;
    out_.writes.push_back({step.kind, step.incoming_first, guarded, step.block, source, message, piece});
  }

  const Schedule& schedule_;
  Program& out_;
  std::vector<BlockUse> blocks_;
  std::vector<PeerUse> peers_;
  std::uint32_t number_ = 0;
  RoundProgram now_{};
};

}  // namespace

Encodings encodings_of(const Schedule& schedule, const Program& program) {
  const std::size_t blocks = static_cast<std::size_t>(schedule.blocks) + schedule.temps.size();
  Encodings found{std::vector<char>(program.pieces.size()), std::vector<char>(blocks), {}};
  std::vector<char> encoded(blocks);
  const auto index = [](std::int32_t block) { return static_cast<std::size_t>(block); };
  for (const RoundProgram& round : program.rounds) {
    for (std::uint32_t p = round.first_sent_piece; p < round.first_received_piece; ++p) {
      const std::size_t block = index(program.pieces[p]);
      found.again[p] = encoded[block];
      found.kept[block] |= encoded[block];
      encoded[block] = true;
    }
    for (std::uint32_t w = round.first_write; w < round.end_write; ++w) {
      const Write& write = program.writes[w];
      encoded[index(write.block)] =
          write.kind == StepKind::receive || (write.kind == StepKind::copy && encoded[index(write.source)]);
    }
  }
  for (auto write = program.writes.rbegin(); write != program.writes.rend(); ++write) {  // copies pass encodings on
    if (write->kind == StepKind::copy) found.kept[index(write->source)] |= found.kept[index(write->block)];
  }
  for (std::int32_t b = 0; b < schedule.blocks; ++b) {
    if (!encoded[index(b)]) found.noncanonical.push_back(b);
  }
  return found;
}

bool Program::computes(std::size_t first, std::size_t end) const {
  return std::any_of(writes.begin() + static_cast<std::ptrdiff_t>(first),
                     writes.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Write& write) { return ringcomm::computes(write.kind); });
}

Program::Program(const Schedule& schedule, bool blocks_change_first) {
  if (schedule.size < 1 || schedule.blocks < 0)
    throw invalid("a schedule needs at least one rank, and cannot have a negative number of blocks");
  for (const int temp : schedule.temps) {
    if (temp < 0 || temp >= schedule.blocks)
      throw invalid("a temporary block of the schedule mirrors a block that does not exist");
  }
  Compiler compiler(schedule, blocks_change_first, *this);
  for (const Round& round : schedule.rounds) compiler.add(round);
}

}  // namespace ringcomm
