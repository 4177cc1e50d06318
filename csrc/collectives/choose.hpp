// Chooses the route of a call, its schedule, and the size of its segments. The choice depends only
// on data that is equal on all ranks, so all ranks choose the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codecs/wire_format.hpp"
#include "schedule/price.hpp"
#include "schedule/registry.hpp"
#include "schedule/topology.hpp"

namespace ringcomm {

inline constexpr std::string_view kShared = "shared";  // name of the route through the host's shared memory

bool has_two_levels(Collective collective);
// Checks the name of a requested algorithm (on one level or on two), or "shared". Throws
// Error(invalid) unless `name` is valid for `size` ranks (0: any number).
void check_algorithm(Collective collective, const std::string& name, int size);

// The route by which a call's data moves.
enum class Route : std::uint8_t {
  local,        // one rank
  shared,       // through the host's shared memory
  inline_data,  // within the consistency check (collectives/consistency/consistency_check.hpp)
  schedule,     // by messages
  two_levels,   // by messages between hosts, in shared memory within them
  adasum,       // complete vectors by messages (collectives/adasum.hpp)
};

struct Choice {
  Route route = Route::schedule;
  // Algorithm of routes with a schedule; null for a custom algorithm, or for one that
  // cannot run here.
  const Algorithm* algorithm = nullptr;
  int root = 0;  // group rank, for algorithms with a fixed root
  Cut cut;
  std::string name;  // for traces and messages; finds a custom algorithm. "shared", "two_level:tree:3"

  // Returns the name without the digest that distinguishes custom algorithms of equal names.
  std::string_view shown() const { return std::string_view(name).substr(0, name.find('#')); }
};

// A priced way to run a collective.
struct Option : Choice {
  Price price;
  std::uint64_t peers = 0;  // number of different ranks that a rank sends to
  bool chosen = false;      // true for the option of its list that is used
};

// A price list of all built-in ways to run one collective on a group of ranks. A schedule is
// analysed when it is first priced.
class Menu {
 public:
  // With a topology, prices include contention on its links, and "" selects all algorithms.
  Menu(Collective collective, int size, Placement hosts, Network network,
       std::shared_ptr<const Topology> topology = nullptr);
  // Returns the options for `name`, each with its cheapest cut, and one of them chosen. "" selects
  // all options; the name of an algorithm selects it on one level and on two. `equal_blocks`: all
  // blocks have one size. `memory`: includes routes through shared memory: two levels, or "shared"
  // if there is only one host. With a topology, algorithms with too many messages are left out.
  std::vector<Option> options(const AlgorithmName& name, std::size_t nbytes, bool equal_blocks, bool memory = false,
                              const Cut& given = {0, 0}, const Encoding& encoding = {});

 private:
  // Returns nullptr if the topology leaves the algorithm out.
  const Profile* profile(const Algorithm& algorithm, bool between_hosts, int root);

  Collective collective_;
  int size_;
  Placement placement_;
  Placement used_;  // the hosts, in the order of their first ranks
  Network network_;
  std::shared_ptr<const Topology> topology_;
  int hosts_ = 1;
  HostRanks on_host_;
  std::map<std::tuple<const Algorithm*, bool, int>, std::optional<Profile>> profiles_;
};

// A rule of a tuning file: the algorithm for a range of bytes and ranks.
struct Rule {
  Collective collective = Collective::allreduce;
  std::size_t from_bytes = 0, to_bytes = ~std::size_t{0};  // both inclusive
  int from_ranks = 0, to_ranks = std::numeric_limits<int>::max();
  std::string algorithm;    // "": chosen by the model
  std::size_t segment = 0;  // 0: chosen by the model
};

struct Terms {
  Network network;
  Placement hosts;                           // host of each rank of the group
  Cut given{0, 0};                           // values fixed for every call; 0: chosen
  std::string algorithm;                     // for all-reduces that name no algorithm, if it can run
  std::vector<Rule> rules;                   // otherwise the first rule that matches the call and can run decides
  std::shared_ptr<const Topology> topology;  // see Menu; null: none
};

// The memory that ranks share.
enum class Memory : std::uint8_t {
  none,
  on_hosts,    // the ranks of each host share memory
  everybodys,  // all ranks are on one host
};

// Makes each choice once and keeps it: per collective, power of two of bytes, and requested name.
class Chooser {
 public:
  Chooser(int size, Memory memory, Terms terms);
  // `name`: "" lets the rules and the model choose. `nbytes`: of the complete buffer.
  const Choice& choose(Collective collective, const std::string& name, std::size_t nbytes, bool equal_blocks,
                       const Encoding& encoding = {});
  bool free(Collective collective) const {  // only the model chooses for calls that name no algorithm
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
