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

#include "schedule/price.hpp"
#include "schedule/registry.hpp"

namespace ringcomm {

inline constexpr std::string_view kTwoLevel = "two_level:";  // and the name of the algorithm between hosts
bool has_two_levels(Collective collective);

// One way to run a collective.
struct Option {
  std::string name;  // an algorithm's; "shared"; two_level: and the name of the one between hosts
  Cut cut;
  Price price;
  std::uint64_t peers = 0;  // different ones that a rank sends to
  bool chosen = false;      // of those it is listed with
};

// Every built-in way to run one collective on some ranks, priced. Schedules are looked at when first priced.
class Menu {
 public:
  Menu(Collective collective, int size, Placement hosts, Network network);
  // The ways that `name` stands for ("": all; an algorithm's: on one level and on two), each with its cheapest cut, one
  // of them chosen. `equal_blocks`: all blocks are of one size.
  // `memory`: also with the ranks of a host in shared memory: on two levels, or "shared" if there is one host only.
  std::vector<Option> options(std::string_view name, std::size_t nbytes, bool equal_blocks, bool memory = false,
                              const Cut& given = {0, 0});

 private:
  const Profile& profile(const Algorithm& algorithm, bool between_hosts);

  Collective collective_;
  int size_;
  Placement places_;
  Network network_;
  int hosts_ = 1;
  HostRanks on_host_;
  std::map<std::pair<const Algorithm*, bool>, Profile> profiles_;
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
  std::vector<Rule> rules;  // the first that fits a call and can run holds
};

struct Choice {
  // An algorithm's name, "two_level:" and one's, "shared" (through the host's memory) or "local" (one rank).
  std::string path;
  Cut cut;
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
  // `name`: "" leaves it to the rules and the model; other names are taken as they are. `nbytes` of the whole buffer.
  // `whole`: vectors that no lane may see a slice of.
  const Choice& choose(Collective collective, const std::string& name, std::size_t nbytes, bool equal_blocks,
                       bool whole = false);

 private:
  bool can_run(const std::string& name, Collective collective, bool equal_blocks) const;
  Choice make(Collective collective, const std::string& name, std::size_t nbytes, bool equal_blocks, bool memory,
              const Cut& given);

  using Key = std::tuple<Collective, int, bool, bool, std::string, std::size_t>;
  int size_;
  bool in_memory_, on_hosts_;
  Terms terms_;
  Choice memory_{"shared", {0, 1}}, local_{"local", {0, 1}};
  std::map<Collective, Menu> menus_;
  std::map<Key, Choice> made_;
};

}  // namespace ringcomm
