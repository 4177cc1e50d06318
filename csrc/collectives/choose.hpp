// Which schedule runs a call, and how it is cut. Depends only on what every rank knows to be equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codecs/wire_format.hpp"
#include "schedule/price.hpp"
#include "schedule/registry.hpp"

namespace ringcomm {

inline constexpr std::string_view kShared = "shared";  // asked for, it is the host's memory

bool has_two_levels(Collective collective);
// What a call may ask for: an algorithm on one level or on two, or "shared", the host's memory. Throws Error(invalid)
// unless `name` is such a thing, among `size` ranks (0: any number).
void check_algorithm(Collective collective, const std::string& name, int size);

// How a call's data moves.
enum class Route : std::uint8_t {
  local,        // one rank
  shared,       // through the host's memory
  inline_data,  // with the comparison of calls (collectives/consistency/consistency_check.hpp)
  schedule,     // by messages
  two_levels,   // by messages between hosts, through memory inside them
  adasum,       // whole vectors by messages (collectives/adasum.hpp)
};

struct Choice {
  Route route = Route::schedule;
  const Algorithm* algorithm = nullptr;  // of paths with a schedule; null: a user's, or one that cannot run here
  int root = 0;                          // group rank, of algorithms that have one of their own
  Cut cut;
  std::string name;  // "shared", "two_level:tree:3"; for traces and people, and of a user's algorithm

  // Without the digest that tells a user's algorithm from another of its name.
  std::string_view shown() const { return std::string_view(name).substr(0, name.find('#')); }
};

// One way to run a collective.
struct Option : Choice {
  Price price;
  std::uint64_t peers = 0;  // different ones that a rank sends to
  bool chosen = false;      // of those it is listed with
};

// Every built-in way to run one collective on some ranks, priced. Schedules are looked at when first priced.
class Menu {
 public:
  Menu(Collective collective, int size, Placement hosts, Network network);
  // The ways that `name` stands for ("": all that may be chosen; an algorithm's: on one level and on two), each with
  // its cheapest cut, one of them chosen. `equal_blocks`: all blocks are of one size.
  // `memory`: also with the ranks of a host in shared memory: on two levels, or "shared" if there is one host only.
  std::vector<Option> options(const AlgorithmName& name, std::size_t nbytes, bool equal_blocks, bool memory = false,
                              const Cut& given = {0, 0}, const Encoding& encoding = {});

 private:
  const Profile& profile(const Algorithm& algorithm, bool between_hosts, int root);

  Collective collective_;
  int size_;
  Placement placement_;
  Network network_;
  int hosts_ = 1;
  HostRanks on_host_;
  std::map<std::tuple<const Algorithm*, bool, int>, Profile> profiles_;
};

// From a tuning file: calls of so many bytes on so many ranks run this.
struct Rule {
  Collective collective = Collective::allreduce;
  std::size_t from_bytes = 0, to_bytes = ~std::size_t{0};  // both included
  int from_ranks = 0, to_ranks = std::numeric_limits<int>::max();
  std::string algorithm;    // "": chosen
  std::size_t segment = 0;  // 0: chosen
};

struct Terms {
  Network network;
  Placement hosts;          // of the group's ranks
  Cut given{0, 0};          // what is fixed for every call; 0: chosen
  std::string algorithm;    // of all-reduces that name none, if it can run
  std::vector<Rule> rules;  // then the first that fits a call and can run holds
};

// What ranks share.
enum class Memory : std::uint8_t {
  none,
  on_hosts,    // the ranks of each host have memory of their own in common
  everybodys,  // all ranks are on one host
};

// Makes each choice once: for each collective, power of two of bytes and name asked for.
class Chooser {
 public:
  Chooser(int size, Memory memory, Terms terms);
  // `name`: "" leaves it to the terms and the model; other names are taken as they are. `nbytes` of the whole buffer.
  const Choice& choose(Collective collective, const std::string& name, std::size_t nbytes, bool equal_blocks,
                       const Encoding& encoding = {});
  bool free(Collective collective) const {  // the model alone chooses for calls that name nothing
    return terms_.rules.empty() && (collective != Collective::allreduce || terms_.algorithm.empty());
  }

 private:
  bool can_run(const std::string& name, Collective collective, bool equal_blocks) const;
  Choice make(Collective collective, const std::string& name, std::size_t nbytes, bool equal_blocks, const Cut& given,
              const Encoding& encoding);

  using Key = std::tuple<Collective, int, bool, std::string, std::size_t, Encoding>;
  int size_;
  bool in_memory_, on_hosts_;
  Terms terms_;
  const Choice memory_{Route::shared, nullptr, 0, {0, 1}, "shared"}, local_{Route::local, nullptr, 0, {0, 1}, "local"};
  std::map<Collective, Menu> menus_;
  std::map<Key, Choice> made_;
};

}  // namespace ringcomm
