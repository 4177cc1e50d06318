// Changes one step of every built-in in every possible way, and compares the prover with the
// simulator. Schedules that the prover rejects must not work; those that it accepts must be correct
// on all ranks, with messages in any order.
#include <chrono>
#include <map>

#include "check.hpp"
#include "schedule/prove.hpp"
#include "schedule_simulator.hpp"

using namespace ringcomm;
using simulation::all_ranks;
using simulation::at;

namespace {

// A symbolic value: the ranks' parts in it, of which block, in which order of addition, and of what
// size.
struct Term {
  int block = -1;  // -1: uninitialised; -2: several blocks
  int size = 0;
  std::vector<int> parts;  // how often each rank's part is in it
  std::string text;        // "((0+1)+2)"
};

bool reducing(Collective c) { return computes(c) || c == Collective::barrier; }

Term leaf(int rank, int block, int size, int ranks) {
  Term term{block, size, std::vector<int>(at(ranks)), std::string(1, static_cast<char>('a' + rank))};
  term.parts[at(rank)] = 1;
  return term;
}

Term added(const Term& first, const Term& second) {
  if (first.block == -1 || second.block == -1) return {-1, first.size, {}, ""};
  Term sum{first.block == second.block ? first.block : -2, first.size, first.parts,
           "(" + first.text + second.text + ")"};
  for (std::size_t r = 0; r < sum.parts.size(); ++r) sum.parts[r] += second.parts[r];
  if (sum.text.size() > 4096) sum.text.resize(4096);  // already wrong: a correct sum is short
  return sum;
}

std::vector<std::vector<Term>> at_the_start(const std::vector<Schedule>& schedules) {
  std::vector<std::vector<Term>> blocks;
  for (const Schedule& s : schedules) {
    std::vector<Term> mine;
    for (int b = 0; b < s.blocks + static_cast<int>(s.temps.size()); ++b) {
      const int like = b < s.blocks ? b : s.temps[at(b - s.blocks)];
      const int size = s.collective == Collective::alltoall ? 1 : 1 + like;
      const bool given =
          b < s.blocks && (reducing(s.collective) || (s.collective == Collective::broadcast && s.rank == s.root) ||
                           (s.collective == Collective::allgather && b == s.rank) ||
                           (s.collective == Collective::alltoall && b < s.size));
      mine.push_back(given ? leaf(s.rank, b, size, s.size) : Term{-1, size, {}, ""});
    }
    blocks.push_back(mine);
  }
  return blocks;
}

bool is_leaf(const Term& t, int rank, int block) {
  return t.block == block && t.text == std::string(1, static_cast<char>('a' + rank));
}

bool all_parts(const Term& t, int block, bool once) {
  return t.block == block && std::all_of(t.parts.begin(), t.parts.end(), [&](int n) { return once ? n == 1 : n >= 1; });
}

// Returns whether the term is the sum of the first ranks, in rank order, with any brackets.
bool is_prefix(const Term& t, int block, int ranks) {
  std::string parts, wanted;
  for (const char c : t.text) {
    if (c != '(' && c != ')') parts += c;
  }
  for (int rank = 0; rank < ranks; ++rank) wanted += static_cast<char>('a' + rank);
  return t.block == block && parts == wanted;
}

bool as_promised(const std::vector<Schedule>& schedules, const std::vector<std::vector<Term>>& ends) {
  for (const Schedule& s : schedules) {
    for (int b = 0; b < s.blocks; ++b) {
      const Term& t = ends[at(s.rank)][at(b)];
      bool right = true;
      switch (s.collective) {
        case Collective::allreduce:
          right = all_parts(t, b, true) && t.text == ends[0][at(b)].text;
          break;
        case Collective::reduce:
          right = s.rank != s.root || all_parts(t, b, true);
          break;
        case Collective::reducescatter:
          right = s.rank != b || all_parts(t, b, true);
          break;
        case Collective::barrier:
          right = all_parts(t, b, false);
          break;
        case Collective::scan:
          right = is_prefix(t, b, s.rank + 1);
          break;
        case Collective::exscan:
          right = s.rank == 0 || is_prefix(t, b, s.rank);
          break;
        case Collective::broadcast:
          right = is_leaf(t, s.root, b);
          break;
        case Collective::allgather:
          right = is_leaf(t, b, b);
          break;
        case Collective::alltoall:
          right = b < s.size ? is_leaf(t, s.rank, b) : is_leaf(t, b - s.size, s.rank);
          break;
      }
      if (!right) return false;
    }
  }
  return true;
}

bool works(const std::vector<Schedule>& schedules, std::mt19937& random) {
  auto blocks = at_the_start(schedules);
  const auto fits = [](const Term& target, const Term& incoming) { return target.size == incoming.size; };
  return simulation::Simulator<Term>::run(schedules, blocks, random, fits, added) && as_promised(schedules, blocks);
}

// ---- mutations

struct Tally {
  long rejected = 0, equivalent = 0;
};

class Mutator {
 public:
  explicit Mutator(std::vector<Schedule> schedules) : schedules_(std::move(schedules)) {
    for (Schedule& s : schedules_) {  // wrong declarations would be rejected for themselves
      s.symmetry = Symmetry::none;
      s.busiest.clear();
      s.lag = 0;
    }
  }

  void run(std::map<std::string, Tally>& tallies) {
    tallies_ = &tallies;
    for (std::size_t r = 0; r < schedules_.size(); ++r) {
      for (std::size_t k = 0; k < schedules_[r].rounds.size(); ++k) {
        for (std::size_t i = 0; i < schedules_[r].rounds[k].size(); ++i) {
          if (represents_others(schedules_[r], schedules_[r].rounds[k][i])) mutate(schedules_[r], k, i);
        }
      }
    }
  }

 private:
  // A chain's 4p blocks pass through the ranks in the same way: the steps of the first p represent
  // all.
  static bool represents_others(const Schedule& s, const Step& step) {
    return s.blocks <= 3 * s.size || step.block < s.size;
  }

  void mutate(Schedule& s, std::size_t k, std::size_t i) {
    const std::vector<Round> before = s.rounds;
    const Step step = before[k][i];
    const auto offset = static_cast<std::ptrdiff_t>(i);
    const auto without = [&] { s.rounds[k].erase(s.rounds[k].begin() + offset); };
    const auto with = [&](const char* kind, const auto& change) {
      change();
      judge(kind);
      s.rounds = before;
    };
    with("drop", without);
    with("duplicate", [&] { s.rounds[k].insert(s.rounds[k].begin() + offset, step); });
    for (std::size_t j = i + 1; j < before[k].size(); ++j) {
      with("reorder", [&] { std::swap(s.rounds[k][i], s.rounds[k][j]); });
    }
    for (int q = 0; step.peer >= 0 && q < s.size; ++q) {
      if (q != step.peer && q != s.rank) with("swap peer", [&] { s.rounds[k][i].peer = q; });
    }
    const int blocks = s.blocks + static_cast<int>(s.temps.size());
    // A chain's blocks are equivalent: there, the next `size` blocks represent all.
    const int others = blocks > 3 * s.size ? s.size : blocks - 1;
    for (int further = 1; further <= others; ++further) {
      const int b = (step.block + further) % blocks;
      with("swap block", [&] { s.rounds[k][i].block = b; });
    }
    for (int b = 0; step.source >= 0 && b < blocks; ++b) {
      if (b != step.source) with("swap source", [&] { s.rounds[k][i].source = b; });
    }
    if (step.kind == StepKind::reduce || step.kind == StepKind::combine) {
      with("flip order", [&] { s.rounds[k][i].incoming_first = !step.incoming_first; });
    }
    with("move later", [&] {
      without();
      s.round(k + 1).push_back(step);
    });
    if (k == 0) return;
    with("move earlier", [&] {
      without();
      s.rounds[k - 1].push_back(step);
    });
  }

  void judge(const char* kind) {
    const Proof proof = prove(schedules_);
    const bool writes_input = proof.why.find("caller's input") != std::string::npos;
    if (!writes_input && proof.ok != works(schedules_, random_)) {
      std::fprintf(stderr, "%s of %zu ranks, %s: the prover says '%s', the simulator otherwise\n",
                   schedules_[0].algorithm.c_str(), schedules_.size(), kind, proof.why.c_str());
      CHECK(false);
    }
    CHECK(proof.ok == proof.why.empty());
    ++(proof.ok ? (*tallies_)[kind].equivalent : (*tallies_)[kind].rejected);
  }

  std::vector<Schedule> schedules_;
  std::map<std::string, Tally>* tallies_ = nullptr;
  std::mt19937 random_{20240131};
};

}  // namespace

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kLargest = 6;
#else
constexpr int kLargest = 9;
#endif

int main(int argc, char** argv) {
  const int largest = argc > 1 ? std::atoi(argv[1]) : kLargest;
  std::map<std::string, Tally> all;
  std::mt19937 random{7};
  for (const Algorithm& algorithm : algorithms()) {
    const auto began = std::chrono::steady_clock::now();
    Tally sum;
    for (int p = 1; p <= largest; ++p) {
      const bool rooted = algorithm.collective == Collective::broadcast || algorithm.collective == Collective::reduce;
      const auto schedules = all_ranks(algorithm, p, rooted ? p / 2 : 0);
      CHECK(works(schedules, random));
      std::map<std::string, Tally> tallies;
      Mutator(schedules).run(tallies);
      for (const auto& [kind, tally] : tallies) {
        all[kind].rejected += tally.rejected;
        all[kind].equivalent += tally.equivalent;
        sum.rejected += tally.rejected;
        sum.equivalent += tally.equivalent;
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::printf("%-13s %-18s %7ld rejected %6ld shown equivalent  %.1f s\n",
                std::string(name_of(algorithm.collective)).c_str(), std::string(algorithm.name).c_str(), sum.rejected,
                sum.equivalent, took.count());
    std::fflush(stdout);
  }
  for (const auto& [kind, tally] : all) {
    std::printf("%-13s %8ld rejected %6ld shown equivalent\n", kind.c_str(), tally.rejected, tally.equivalent);
  }
  CHECK(all["drop"].rejected > 0 && all["flip order"].rejected > 0 && all["swap peer"].equivalent == 0);
  std::puts("schedule mutations: passed");
}
