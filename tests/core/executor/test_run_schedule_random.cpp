// Tests random schedules, unlike those of any algorithm, with and without a codec. The reference is
// an interpreter that runs all ranks in lockstep and follows the definitions in schedule.hpp
// literally.
#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <set>
#include <string>

#include "codecs/cast_codec.hpp"
#include "kernels/kernels.hpp"
#include "schedules.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using Block = std::vector<float>;
using Blocks = std::vector<Block>;  // blocks of one rank: data, then temporaries

// A codec that keeps the upper half of every float, slightly reduced, and omits zeros at the end.
// It is lossy, its size varies and may be 0, and decoded values encode to other bytes.
class UpperHalves : public Codec {
 public:
  std::size_t capacity(std::size_t count) const override { return count * 2; }
  std::size_t encode(const CodecKey&, void* block, std::size_t count, void* wire) override {
    Block shrunk(count);
    kernels::scale(DType::float32, shrunk.data(), block, count, {.75, 1});
    std::vector<std::uint32_t> bits(count);
    std::memcpy(bits.data(), shrunk.data(), count * 4);
    while (!bits.empty() && bits.back() >> 16 == 0) bits.pop_back();
    auto* const out = static_cast<std::byte*>(wire);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const auto half = static_cast<std::uint16_t>(bits[i] >> 16);
      std::memcpy(out + 2 * i, &half, 2);
    }
    decode(wire, bits.size() * 2, block, count);
    return bits.size() * 2;
  }
  void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) override {
    CHECK(nbytes <= capacity(count) && nbytes % 2 == 0);
    std::vector<std::uint32_t> bits(count);
    for (std::size_t i = 0; i < nbytes / 2; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, static_cast<const std::byte*>(wire) + 2 * i, 2);
      bits[i] = static_cast<std::uint32_t>(half) << 16;
    }
    std::memcpy(block, bits.data(), count * 4);
  }
  void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                     bool incoming_first) override {
    Block incoming(count);
    decode(wire, nbytes, incoming.data(), count);
    if (incoming_first)
      kernels::reduce(DType::float32, op, block, incoming.data(), block, count);
    else
      kernels::reduce(DType::float32, op, block, block, incoming.data(), count);
  }
};

struct Case {
  int size = 1;
  std::vector<std::size_t> counts;  // elements of all blocks, including temporaries
  std::vector<Schedule> schedules;  // by rank
  std::vector<Blocks> start;        // by rank
};

class Maker {
 public:
  explicit Maker(unsigned seed) : random_(seed) {}

  Case make() {
    case_.size = 1 + static_cast<int>(random_() % 5);
    const int blocks = 1 + static_cast<int>(random_() % 6);
    const std::size_t sizes[] = {0, 1, 37, 37, 1500};
    for (int b = 0; b < blocks; ++b) case_.counts.push_back(sizes[random_() % 5]);
    Schedule blank;
    blank.algorithm = "random";
    blank.size = case_.size;
    blank.blocks = blocks;
    for (int t = pick(3); t > 0; --t) {
      blank.temps.push_back(pick(blocks));
      case_.counts.push_back(case_.counts[static_cast<std::size_t>(blank.temps.back())]);
    }
    for (int rank = 0; rank < case_.size; ++rank) {
      blank.rank = rank;
      case_.schedules.push_back(blank);
      readable_.emplace_back();
      for (int b = 0; b < blocks; ++b) readable_.back().insert(b);
      case_.start.push_back(data());
    }
    for (int rounds = pick(6); rounds > 0; --rounds) add_round();
    return std::move(case_);
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  int blocks() const { return static_cast<int>(case_.counts.size()); }
  int readable(int rank) {
    const std::set<int>& all = readable_[static_cast<std::size_t>(rank)];
    return *std::next(all.begin(), pick(static_cast<int>(all.size())));
  }
  int like(int block) {  // returns a block of equal size
    for (;;) {
      const int other = pick(blocks());
      if (case_.counts[static_cast<std::size_t>(other)] == case_.counts[static_cast<std::size_t>(block)]) return other;
    }
  }

  Blocks data() {
    Blocks out;
    for (const std::size_t count : case_.counts) {
      Block block(count);
      for (float& x : block) {
        x = static_cast<float>(static_cast<int>(random_() % 2001) - 1000) / 7;
        // NaNs differ, so that they show the operand order
        const auto payload = static_cast<std::uint32_t>(random_() % 0x3FFFFF);
        if (random_() % 50 == 0) x = std::bit_cast<float>(0x7FC00000U | payload);
      }
      if (random_() % 3 == 0) std::fill(block.begin() + static_cast<std::ptrdiff_t>(count / 2), block.end(), 0.0F);
      out.push_back(block);
    }
    return out;
  }

  // Steps are drawn from queues, so that the order of a peer's steps is kept and all else is mixed.
  void add_round() {
    std::vector<std::vector<std::deque<Step>>> queues(static_cast<std::size_t>(case_.size));
    auto written = readable_;
    const auto rank_of = [](int rank) { return static_cast<std::size_t>(rank); };
    for (int from = 0; from < case_.size; ++from) {
      for (int to = 0; to < case_.size; ++to) {
        if (from == to || random_() % 2) continue;
        std::deque<Step> sends, receives;
        for (int pieces = 1 + pick(3); pieces > 0; --pieces) {
          const int source = readable(from), target = like(source);
          const bool reducing = random_() % 2 && readable_[rank_of(to)].count(target);
          sends.push_back(send(to, source));
          receives.push_back(reducing ? reduce(from, target, random_() % 2) : receive(from, target));
          written[rank_of(to)].insert(target);
        }
        queues[rank_of(from)].push_back(sends);
        queues[rank_of(to)].push_back(receives);
      }
    }
    for (int rank = 0; rank < case_.size; ++rank) {
      for (int steps = pick(3); steps > 0; --steps) {
        const int source = readable(rank), target = like(source);
        if (source == target) continue;
        const bool combining = random_() % 2 && readable_[rank_of(rank)].count(target);
        const Step step = combining ? combine(source, target, random_() % 2) : copy_block(source, target);
        queues[rank_of(rank)].push_back({step});
        written[rank_of(rank)].insert(target);
      }
      case_.schedules[rank_of(rank)].rounds.push_back(mixed(queues[rank_of(rank)]));
    }
    readable_ = written;
  }

  Round mixed(std::vector<std::deque<Step>>& queues) {
    Round round;
    while (!queues.empty()) {
      std::deque<Step>& queue = queues[random_() % queues.size()];
      round.push_back(queue.front());
      queue.pop_front();
      std::erase_if(queues, [](const auto& q) { return q.empty(); });
    }
    return round;
  }

  std::mt19937 random_;
  Case case_;
  std::vector<std::set<int>> readable_;  // by rank: blocks with known content at the start of a round
};

void reduce_into(Block& block, const Block& other, Op op, bool other_first) {
  if (block.empty()) return;
  const Block own = block;
  const Block& first = other_first ? other : own;
  const Block& second = other_first ? own : other;
  kernels::reduce(DType::float32, op, block.data(), first.data(), second.data(), block.size());
}

// Marks blocks that hold decoded values; these are not encoded again.
using Encoded = std::vector<std::vector<bool>>;  // by rank and block

void pass_through(Block& block, std::vector<bool>::reference encoded, Codec& codec) {
  if (encoded) return;
  encoded = true;
  if (block.empty()) return;
  std::vector<std::byte> bytes(codec.capacity(block.size()));
  codec.decode(bytes.data(), codec.encode({}, block.data(), block.size(), bytes.data()), block.data(), block.size());
}

// Passes all data through the codec, as at the end of a call.
void canonicalize(const Case& test, std::vector<Blocks>& ranks, Encoded& encoded, Codec& codec) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t b = 0; b < static_cast<std::size_t>(test.schedules[0].blocks); ++b)
      pass_through(ranks[rank][b], encoded[rank][b], codec);
  }
}

void interpret_round(const Case& test, std::size_t round, std::vector<Blocks>& ranks, Op op, Encoded& encoded,
                     Codec* codec) {
  const auto steps = [&](std::size_t rank) -> const Round& { return test.schedules[rank].rounds[round]; };
  std::vector<std::vector<std::deque<Block>>> wire(ranks.size(), std::vector<std::deque<Block>>(ranks.size()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Step& step : steps(rank)) {
      if (step.kind != StepKind::send) continue;
      Block& block = ranks[rank][static_cast<std::size_t>(step.block)];
      if (codec) pass_through(block, encoded[rank][static_cast<std::size_t>(step.block)], *codec);
      wire[rank][static_cast<std::size_t>(step.peer)].push_back(block);
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Step& step : steps(rank)) {
      if (step.kind == StepKind::send) continue;
      Block& block = ranks[rank][static_cast<std::size_t>(step.block)];
      Block other;
      bool decoded = true;
      if (step.peer >= 0) {
        std::deque<Block>& queue = wire[static_cast<std::size_t>(step.peer)][rank];
        other = queue.front();
        queue.pop_front();
      } else {
        other = ranks[rank][static_cast<std::size_t>(step.source)];
        decoded = encoded[rank][static_cast<std::size_t>(step.source)];
      }
      encoded[rank][static_cast<std::size_t>(step.block)] = decoded && !computes(step.kind);
      if (step.kind == StepKind::receive || step.kind == StepKind::copy)
        block = other;
      else
        reduce_into(block, other, op, step.incoming_first);
    }
  }
}

// Data blocks one after another, so that neighbours can be sent as one message; `apart` separates
// them.
struct Memory {
  std::vector<float> memory;
  std::vector<Extent> extents;
  Memory(const Blocks& blocks, std::size_t count, bool apart) {
    std::size_t total = 0;
    for (std::size_t b = 0; b < count; ++b) total += blocks[b].size() + (apart ? 3 : 0);
    memory.resize(total);
    std::size_t first = 0;
    for (std::size_t b = 0; b < count; ++b) {
      std::copy(blocks[b].begin(), blocks[b].end(), memory.begin() + static_cast<std::ptrdiff_t>(first));
      extents.push_back({reinterpret_cast<std::byte*>(memory.data() + first), blocks[b].size()});
      first += blocks[b].size() + (apart ? 3 : 0);
    }
  }
};

void check(unsigned seed, bool encoded) {
  const Case test = Maker(seed).make();
  std::mt19937 random(seed);
  const Op op = random() % 2 ? Op::sum : Op::max;
  const std::size_t segments[] = {1, 10, 1 << 20};
  // An interpreter of complete blocks ignores segments, and so does an encoder of single elements.
  const std::size_t segment = segments[random() % 3] + (seed % 2) * 40, window = 1 + random() % 4;
  const Cut cut{segment, window, random() % 2 ? kLongestMessage : 1 + random() % 200};
  const bool apart = random() % 2;
  std::vector<Blocks> expected = test.start;
  UpperHalves codec;
  Encoded encoded_blocks;
  for (const Blocks& blocks : expected) encoded_blocks.emplace_back(blocks.size());
  const std::size_t rounds = test.schedules[0].rounds.size();
  for (std::size_t round = 0; round < rounds; ++round) {
    interpret_round(test, round, expected, op, encoded_blocks, encoded ? &codec : nullptr);
  }
  if (encoded && test.size > 1) canonicalize(test, expected, encoded_blocks, codec);
  on_seats(test.size, [&](Seat& seat) {
    const auto rank = static_cast<std::size_t>(seat.rank);
    const Schedule& schedule = test.schedules[rank];
    Memory memory(test.start[rank], static_cast<std::size_t>(schedule.blocks), apart);
    RunOptions options = options_of(cut, DType::float32, op);
    if (encoded) options.codec = std::make_shared<UpperHalves>();
    Layout layout = Layout::listed(memory.extents, sizeof(float), cut.segment);
    seat.run(std::make_shared<const Schedule>(schedule), std::move(layout), nullptr, options);
    for (std::size_t b = 0; b < memory.extents.size(); ++b) {
      const Block& block = expected[rank][b];
      CHECK(block.empty() || std::memcmp(memory.extents[b].data, block.data(), block.size() * sizeof(float)) == 0);
    }
  });
}

// Runs the public codec under every algorithm: small integers are exact, and other values are equal
// on all ranks.
void cast_on_the_wire(int size, std::string_view algorithm) {
  constexpr std::size_t kCount = 2000;
  for (const bool exact : {true, false}) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(size), std::vector<float>(kCount));
    on_seats(size, [&](Seat& seat) {
      std::vector<float>& data = results[static_cast<std::size_t>(seat.rank)];
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto small = static_cast<float>((i + static_cast<std::size_t>(seat.rank)) % 20);
        data[i] = exact ? small : static_cast<float>(seat.random()) * 1e-9F;
      }
      const auto schedule = schedule_for(Collective::allreduce, algorithm, seat.rank, seat.size);
      RunOptions options = options_of({700, 2, 333}, DType::float32);
      options.codec = make_cast_codec(DType::float32, DType::bfloat16);
      seat.run(schedule, Layout::even(data.data(), kCount, schedule->blocks, sizeof(float), 700), nullptr, options);
    });
    for (const auto& result : results)
      CHECK(std::memcmp(result.data(), results[0].data(), kCount * sizeof(float)) == 0);
    for (std::size_t i = 0; exact && i < kCount; ++i) {
      std::size_t sum = 0;
      for (int rank = 0; rank < size; ++rank) sum += (i + static_cast<std::size_t>(rank)) % 20;
      CHECK(results[0][i] == static_cast<float>(sum));
    }
  }
}

}  // namespace

int main() {
  for (unsigned seed = 0; seed < 400; ++seed) {
    check(seed, false);
    check(seed, true);
  }
  for (int size = 2; size <= 9; ++size) {
    for (const std::string_view name : algorithm_names(Collective::allreduce)) cast_on_the_wire(size, name);
  }
}
