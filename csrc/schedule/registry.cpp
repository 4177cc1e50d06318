#include "schedule/registry.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.hpp"
#include "schedule/built_in.hpp"

namespace ringcomm {
namespace {

using namespace schedules;

constexpr std::string_view kButterfly = "butterfly", kDoubling = "butterfly_doubling", kHalving = "butterfly_halving";

bool has_root(Collective collective) { return collective == Collective::broadcast || collective == Collective::reduce; }

std::string known_names(Collective collective) {
  std::string names = collective == Collective::allreduce ? std::string(kButterfly) : "";
  for (const std::string_view name : algorithm_names(collective)) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

// The schedules made last, up to a number and a total of steps (each about 20 bytes).
class Cache {
 public:
  std::shared_ptr<const Schedule> get(const Algorithm& algorithm, int rank, int size, int root) {
    const Key key{&algorithm, rank, size, root};
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = entries_.find(key); found != entries_.end()) {
        found->second.used = ++clock_;
        return found->second.schedule;
      }
    }
    auto made = std::make_shared<const Schedule>(algorithm.make(rank, size, root));
    std::size_t weight = made->rounds.size();
    for (const Round& round : made->rounds) weight += round.size();
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = entries_.try_emplace(key, Entry{made, ++clock_, weight});
    if (!is_new) return place->second.schedule;  // another thread was faster
    weight_ += weight;
    while (entries_.size() > kEntries || (weight_ > kWeight && entries_.size() > 1)) drop_oldest();
    return made;
  }

 private:
  using Key = std::tuple<const Algorithm*, int, int, int>;
  struct Entry {
    std::shared_ptr<const Schedule> schedule;
    std::uint64_t used;
    std::size_t weight;
  };
  static constexpr std::size_t kEntries = 256, kWeight = std::size_t{1} << 20;

  void drop_oldest() {
    const auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                         [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    weight_ -= oldest->second.weight;
    entries_.erase(oldest);
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::uint64_t clock_ = 0;
  std::size_t weight_ = 0;
};

Cache& cache() {
  static Cache kept;
  return kept;
}

}  // namespace

const std::vector<Algorithm>& algorithms() {
  using enum Collective;
  // Of a collective, the one with the fewest rounds for any p and unequal blocks comes first.
  static const std::vector<Algorithm> table{
      {allreduce, kDoubling, allreduce_butterfly_doubling, false,
       "exchange whole buffers with the rank that differs in one bit: L*alpha + L*S*(beta + gamma)"},
      {allreduce, kHalving, allreduce_butterfly_halving, false,
       "exchange halves, quarters, ... and back: 2L*alpha + 2f*S*beta + f*S*gamma, folded if p is no power of two"},
      {allreduce, "circulant", allreduce_circulant, false,
       "halving-doubling for any p, without folding: 2L*alpha + 2f*S*beta + f*S*gamma"},
      {allreduce, "tree", allreduce_tree, false,
       "binomial reduce to rank 0 and broadcast back: 2L*alpha + L*S*(2beta + gamma)"},
      {allreduce, "all_to_all", allreduce_all_to_all, false,
       "everyone sends everything to everyone, one round: (p-1)*(alpha + S*beta + S*gamma)"},
      {allreduce, "master_worker", allreduce_master_worker, false,
       "rank 0 reduces all and sends the result back: (p-1)*(2alpha + 2S*beta + S*gamma)"},
      {allreduce, "round_robin", allreduce_round_robin, false,
       "each block straight to its owner and back, staggered, two rounds: 2(p-1)*alpha + 2f*S*beta + f*S*gamma"},
      {allreduce, "ring", allreduce_ring, false,
       "p-1 share-reduce and p-1 share-only steps: 2(p-1)*alpha + 2f*S*beta + f*S*gamma"},
      {reduce, "binomial", reduce_binomial, false, "binomial tree to the root: L*alpha + L*S*(beta + gamma)"},
      {reduce, "ring_gather", reduce_ring_gather, false,
       "ring reduce-scatter, binomial gather: (p-1+L)*alpha + 2f*S*beta + f*S*gamma"},
      {broadcast, "binomial", broadcast_binomial, false, "binomial tree from the root: L*alpha + L*S*beta"},
      {broadcast, "scatter_ring", broadcast_scatter_ring, false,
       "binomial scatter, ring all-gather: (L+p-1)*alpha + 2f*S*beta"},
      {broadcast, "chain", broadcast_chain, false,
       "4p blocks one behind the other from rank to rank: (5p-2)*(alpha + S*beta/4p)"},
      {allgather, "bruck", allgather_bruck, false, "distances 1, 2, 4, ...: L*alpha + f*S*beta"},
      {allgather, "ring", allgather_ring, false, "what came last goes on to the next: (p-1)*alpha + f*S*beta"},
      {reducescatter, "circulant", reducescatter_circulant, false,
       "Bruck's all-gather backwards: L*alpha + f*S*(beta + gamma)"},
      {reducescatter, "ring", reducescatter_ring, false,
       "partial sums go once round: (p-1)*alpha + f*S*(beta + gamma)"},
      {alltoall, "direct", alltoall_direct, false, "all to all at once, staggered, one round: (p-1)*alpha + f*S*beta"},
      {alltoall, "pairwise", alltoall_pairwise, false, "to r+i and from r-i, one at a time: (p-1)*alpha + f*S*beta"},
      {alltoall, "bruck", alltoall_bruck, true,
       "blocks travel by powers of two: L*alpha + (L/2)*S*beta, equal blocks only"},
      {barrier, "dissemination", barrier_dissemination, false, "tell r + 2^k, hear from r - 2^k: L*alpha"},
  };
  return table;
}

std::vector<std::string_view> algorithm_names(Collective collective) {
  std::vector<std::string_view> names;
  for (const Algorithm& a : algorithms()) {
    if (a.collective == collective) names.push_back(a.name);
  }
  return names;
}

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  if (collective == Collective::allreduce && name == kButterfly) name = kHalving;
  for (const Algorithm& a : algorithms()) {
    if (a.collective == collective && a.name == name) return &a;
  }
  return nullptr;
}

std::vector<const Algorithm*> algorithms_named(Collective collective, std::string_view name) {
  const bool butterfly = collective == Collective::allreduce && name == kButterfly;
  std::vector<const Algorithm*> found;
  for (const Algorithm& a : algorithms()) {
    if (a.collective != collective) continue;
    if (name.empty() || a.name == name || (butterfly && (a.name == kDoubling || a.name == kHalving)))
      found.push_back(&a);
  }
  return found;
}

std::shared_ptr<const Schedule> schedule_for(Collective collective, std::string_view name, int rank, int size,
                                             int root) {
  const Algorithm* const algorithm = find_algorithm(collective, name);
  if (!algorithm) {
    throw Error(ErrorKind::invalid, "there is no " + std::string(name_of(collective)) + " algorithm '" +
                                        std::string(name) + "'; known: " + known_names(collective));
  }
  if (size < 1 || rank < 0 || rank >= size || root < 0 || root >= size) {
    throw Error(ErrorKind::invalid, "rank " + std::to_string(rank) + " and root " + std::to_string(root) +
                                        " must be in 0.." + std::to_string(size - 1));
  }
  return cache().get(*algorithm, rank, size, has_root(collective) ? root : 0);
}

}  // namespace ringcomm
