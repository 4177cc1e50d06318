// Implements the menu of priced options, and the chooser that keeps each decision.
#include "collectives/choose.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "base/tuned.hpp"
#include "schedule/contention.hpp"

namespace ringcomm {
namespace {

std::string full_name(const Algorithm& algorithm, bool two_levels, int root) {
  return concat(two_levels ? kTwoLevel : "", algorithm.name, root >= 0 ? concat(":", root) : "");
}

// Returns a key that orders options with nearly equal prices. The cost model omits effects that
// make many peers a disadvantage: connections must reach their rate, and senders collide. Short
// buffers avoid these effects, because they fit into any queue. For them the number of rounds
// matters most: the latency of a round is the parameter that varies most with the load of hosts.
auto burden(const Option& option, std::size_t nbytes) {
  constexpr std::size_t kShort = 64 << 10;
  return std::tuple(nbytes < kShort ? option.price.rounds : 0, option.peers, option.price.seconds);
}

// Marks the cheapest option; if several cost nearly the same, the one with the smallest burden.
void choose_one(std::vector<Option>& options, std::size_t nbytes) {
  constexpr double kNearly = 1.03;
  double least = std::numeric_limits<double>::infinity();
  for (const Option& option : options) least = std::min(least, option.price.seconds);
  Option* best = nullptr;
  for (Option& option : options) {
    if (option.price.seconds > kNearly * least) continue;
    if (!best || burden(option, nbytes) < burden(*best, nbytes)) best = &option;
  }
  if (best) best->chosen = true;
}

const Placement kSeparate{};  // every rank has a separate host

}  // namespace

bool has_two_levels(Collective collective) {
  return collective != Collective::alltoall && collective != Collective::barrier && !is_scan(collective);
}

Menu::Menu(Collective collective, int size, Placement hosts, Network network, std::shared_ptr<const Topology> topology)
    : collective_(collective), size_(size), placement_(std::move(hosts)), network_(network),
      topology_(std::move(topology)) {
  std::map<int, int> ranks;  // number of ranks on each host
  for (const int host : placement_) {
    if (++ranks[host] == 1) used_.push_back(host);
  }
  hosts_ = placement_.empty() ? size : static_cast<int>(ranks.size());
  if (!placement_.empty()) on_host_.lanes = size;
  for (const auto& [host, count] : ranks) on_host_ = {std::min(on_host_.lanes, count), std::max(on_host_.most, count)};
}

void check_algorithm(Collective collective, const std::string& name, int size) {
  const AlgorithmName wanted(name);
  const std::string what(name_of(collective));
  if (name.empty() || name == kShared) return;
  if (!find_algorithm(collective, wanted) || (wanted.two_levels && !has_two_levels(collective))) {
    const std::string levels = has_two_levels(collective) ? ", two_level:NAME" : "";
    throw invalid("there is no ", what, " algorithm '", name, "'; known: ", known_names(collective), levels, ", ",
                  kShared);
  }
  if (size > 0 && wanted.root >= size)
    throw invalid(what, " algorithm '", name, "': its root is not one of the ", size, " ranks");
}

const Profile* Menu::profile(const Algorithm& algorithm, bool between_hosts, int root) {
  const auto [entry, is_new] = profiles_.try_emplace({&algorithm, between_hosts, root});
  if (is_new) {
    const int size = between_hosts ? hosts_ : size_;
    const auto make = [&](int rank) { return algorithm.make(rank, size, root); };
    const Placement& hosts = between_hosts ? (topology_ ? used_ : kSeparate) : placement_;
    entry->second = make_profile(make, size, hosts);
    // A lane's share of the host's link, which pricing divides among all lanes: with several rails
    // it shares one with fewer lanes.
    const int lanes = on_host_.lanes, rails = topology_ ? topology_->rails() : 1;
    const double share = between_hosts ? static_cast<double>((lanes + rails - 1) / rails) / lanes : 1;
    if (topology_ &&
        !add_contention(*entry->second, make, *topology_, hosts, network_.within.beta / network_.between.beta, share))
      entry->second.reset();
  }
  return entry->second ? &*entry->second : nullptr;
}

std::vector<Option> Menu::options(const AlgorithmName& name, std::size_t nbytes, bool equal_blocks, bool memory,
                                  const Cut& given, const Encoding& encoding) {
  std::vector<Option> found;
  // Two levels with one rank per host run only if requested.
  memory &= has_two_levels(collective_) && (on_host_.most > 1 || name.two_levels);
  if (name.root >= size_ || (name.two_levels && (!memory || hosts_ == 1))) return found;
  const int root = std::max(0, name.root);
  for (const Algorithm* algorithm : algorithms_named(collective_, name, topology_ != nullptr)) {
    if ((algorithm->equal_blocks && !equal_blocks) || !(encoding.rounds || algorithm->direct)) continue;
    const auto add = [&](Route route, const Algorithm* runs, std::string text, const Priced& priced,
                         std::uint64_t peers) {
      found.push_back({{route, runs, root, priced.cut, std::move(text)}, priced.price, peers});
    };
    const auto two_levels = [&](const Profile& between, const Cut& cut) {
      return cheapest_two_level(between, on_host_, nbytes, network_, cut, encoding);
    };
    if (memory && hosts_ == 1 && found.empty() && name.name.empty())  // priced as two levels, one of which is empty
      add(Route::shared, nullptr, std::string(kShared),
          {{0, 1}, two_levels(*profile(*algorithm, true, 0), {nbytes, 1}).price}, 0);
    if (const Profile* const candidate = name.two_levels ? nullptr : profile(*algorithm, false, root)) {
      add(Route::schedule, algorithm, full_name(*algorithm, false, name.root),
          cheapest(*candidate, nbytes, network_, given, encoding), candidate->peers);
    }
    if (!memory || hosts_ == 1) continue;
    if (const Profile* const between = profile(*algorithm, true, 0)) {  // root 0: any other host costs the same
      add(Route::two_levels, algorithm, full_name(*algorithm, true, name.root), two_levels(*between, given),
          between->peers);
    }
  }
  choose_one(found, nbytes);
  return found;
}

Chooser::Chooser(int size, Memory memory, Terms terms)
    : size_(size), in_memory_(memory == Memory::everybodys), on_hosts_(memory == Memory::on_hosts),
      terms_(std::move(terms)) {
  if (!can_run(terms_.algorithm, Collective::allreduce, true)) terms_.algorithm.clear();
}

bool Chooser::can_run(const std::string& name, Collective collective, bool equal_blocks) const {
  if (name.empty()) return true;
  if (name == kShared) return in_memory_;
  const AlgorithmName wanted(name);
  const Algorithm* const algorithm = find_algorithm(collective, wanted);
  if (wanted.two_levels) return algorithm && on_hosts_ && has_two_levels(collective) && wanted.root < size_;
  // An algorithm that is not built in is a custom one, which can run.
  return !algorithm || (wanted.root < size_ && (equal_blocks || !algorithm->equal_blocks));
}

const Choice& Chooser::choose(Collective collective, const std::string& name, std::size_t nbytes, bool equal_blocks,
                              const Encoding& encoding) {
  if (size_ == 1) return local_;
  if (in_memory_ && name.empty() && free(collective)) return memory_;
  const std::string* wanted = &name;
  Cut given = terms_.given;
  if (name.empty() && collective == Collective::allreduce) wanted = &terms_.algorithm;
  for (const Rule& rule : terms_.rules) {
    if (!wanted->empty()) break;
    if (rule.collective != collective || nbytes < rule.from_bytes || nbytes > rule.to_bytes) continue;
    if (size_ < rule.from_ranks || size_ > rule.to_ranks) continue;
    if (!can_run(rule.algorithm, collective, equal_blocks)) continue;
    wanted = &rule.algorithm;
    if (rule.segment > 0) given.segment = rule.segment;
    break;
  }
  if (in_memory_ && (wanted->empty() || *wanted == kShared)) return memory_;
  nbytes = std::bit_ceil(std::max<std::size_t>(1, nbytes));
  Key key{collective, std::bit_width(nbytes), equal_blocks, *wanted, given.segment, encoding};
  if (const auto known = made_.find(key); known != made_.end()) return known->second;
  Choice choice = make(collective, *wanted, nbytes, equal_blocks, given, encoding);
  return made_.emplace(std::move(key), std::move(choice)).first->second;
}

Choice Chooser::make(Collective collective, const std::string& name, std::size_t nbytes, bool equal_blocks,
                     const Cut& given, const Encoding& encoding) {
  auto menu = menus_.find(collective);
  if (menu == menus_.end())
    menu = menus_.emplace(collective, Menu(collective, size_, terms_.hosts, terms_.network, terms_.topology)).first;
  std::vector<Option> options = menu->second.options(name, nbytes, equal_blocks, on_hosts_, given, encoding);
  if (options.empty() && terms_.topology)  // too many messages to count: prices without contention
    options = Menu(collective, size_, terms_.hosts, terms_.network)
                  .options(name, nbytes, equal_blocks, on_hosts_, given, encoding);
  if (options.empty() && !encoding.rounds) {
    throw invalid(name_of(collective), " algorithm '", name,
                  "' cannot use a lossy wire format, because it encodes partial sums; leave out "
                  "the algorithm, or use round_robin");
  }
  if (options.empty()) {  // custom algorithm, without a price: this rank knows only its own schedule
    constexpr std::size_t kWindow = 4;
    const Cut cut{given.segment > 0 ? given.segment : kMessageSegment, given.window > 0 ? given.window : kWindow};
    return {Route::schedule, nullptr, 0, cut, name};
  }
  return *std::find_if(options.begin(), options.end(), [](const Option& option) { return option.chosen; });
}

}  // namespace ringcomm
