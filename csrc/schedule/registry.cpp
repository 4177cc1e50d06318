// Lists the built-in algorithms, and parses and resolves their names.
#include "schedule/registry.hpp"

#include <charconv>

#include "base/error.hpp"

namespace ringcomm {

namespace schedules {
// Functions that make the schedules, one per row of the table below. Each is in the file of its
// name.
using Make = Schedule(int rank, int size, int root);
Make allreduce_all_to_all, allreduce_bine_doubling, allreduce_bine_halving, allreduce_butterfly_doubling,
    allreduce_butterfly_halving, allreduce_circulant, allreduce_master_worker, allreduce_ring, allreduce_round_robin,
    allreduce_tree;
Make reduce_bine, reduce_binomial, reduce_ring_gather, reduce_chain;
Make broadcast_bine, broadcast_binomial, broadcast_chain, broadcast_scatter_ring;
Make allgather_bruck, allgather_ring;
Make reducescatter_circulant, reducescatter_ring;
Make alltoall_bruck, alltoall_direct, alltoall_pairwise;
Make barrier_dissemination;
Make scan_doubling, exscan_doubling;
}  // namespace schedules

namespace {

using namespace schedules;

// kByNameOnly: for algorithms that reduce the contention of links. Without a topology the price has
// no contention, so they can only tie there if every rank has a separate host.
constexpr bool kAutomatic = true, kByNameOnly = false, kAnyRoot = true, kEqualBlocks = true, kDirect = true;
constexpr std::string_view kButterfly = "butterfly", kSwing = "swing";

}  // namespace

const std::vector<Algorithm>& algorithms() {
  using enum Collective;
  // The first algorithm of each collective has the fewest rounds among those for any p and unequal
  // blocks.
  static const std::vector<Algorithm> table{
      {allreduce, "butterfly_doubling", allreduce_butterfly_doubling,
       "exchange complete buffers with the rank that differs in one bit: L*alpha + L*S*(beta + gamma)", kAutomatic,
       false, false, false, kButterfly},
      {allreduce, "butterfly_halving", allreduce_butterfly_halving,
       "exchange halves, quarters, ... and back: 2L*alpha + 2f*S*beta + f*S*gamma, folded if p is no power of two",
       kAutomatic, false, false, false, kButterfly},
      {allreduce, "circulant", allreduce_circulant,
       "halving-doubling for any p, without folding: 2L*alpha + 2f*S*beta + f*S*gamma", kAutomatic},
      {allreduce, "tree", allreduce_tree,
       "binomial reduce to a root (tree:3; else rank 0) and broadcast back: 2L*alpha + L*S*(2beta + gamma)", kAutomatic,
       kAnyRoot},
      {allreduce, "all_to_all", allreduce_all_to_all,
       "every rank sends its data to every other rank, one round: (p-1)*(alpha + S*beta + S*gamma)", kAutomatic, false,
       false, kDirect},
      {allreduce, "master_worker", allreduce_master_worker,
       "a root (master_worker:3; else rank 0) reduces all buffers and sends the result back: (p-1)*(2alpha + 2S*beta + "
       "S*gamma)",
       kAutomatic, kAnyRoot, false, kDirect},
      {allreduce, "round_robin", allreduce_round_robin,
       "each block is sent to its owner and back, staggered, two rounds: 2(p-1)*alpha + 2f*S*beta + f*S*gamma",
       kAutomatic, false, false, kDirect},
      {allreduce, "ring", allreduce_ring,
       "p-1 share-reduce and p-1 share-only steps: 2(p-1)*alpha + 2f*S*beta + f*S*gamma", kAutomatic},
      {allreduce, "bine_doubling", allreduce_bine_doubling,
       "exchange complete buffers over distances ..., 5, 3, 1, 1 (Swing, Bine): L*alpha + L*S*(beta + gamma)",
       kByNameOnly, false, false, false, kSwing},
      {allreduce, "bine_halving", allreduce_bine_halving,
       "exchange halves, quarters, ... over distances 1, 1, 3, 5, ... and back (Swing, Bine): 2L*alpha + 2f*S*beta + "
       "f*S*gamma",
       kByNameOnly, false, false, false, kSwing},
      {reduce, "binomial", reduce_binomial, "binomial tree to the root: L*alpha + L*S*(beta + gamma)", kAutomatic},
      {reduce, "ring_gather", reduce_ring_gather,
       "ring reduce-scatter, binomial gather: (p-1+L)*alpha + 2f*S*beta + f*S*gamma", kAutomatic},
      {reduce, "chain", reduce_chain, "pipeline of 4p blocks from rank to rank: (5p-2)*(alpha + S*(beta + gamma)/4p)",
       kAutomatic},
      {reduce, "bine", reduce_bine,
       "Bine tree to the root, shorter distances than binomial: L*alpha + L*S*(beta + gamma)", kByNameOnly},
      {broadcast, "binomial", broadcast_binomial, "binomial tree from the root: L*alpha + L*S*beta", kAutomatic},
      {broadcast, "scatter_ring", broadcast_scatter_ring,
       "binomial scatter, ring all-gather: (L+p-1)*alpha + 2f*S*beta", kAutomatic},
      {broadcast, "chain", broadcast_chain, "pipeline of 4p blocks from rank to rank: (5p-2)*(alpha + S*beta/4p)",
       kAutomatic},
      {broadcast, "bine", broadcast_bine,
       "Bine tree from the root, shorter distances than binomial: L*alpha + L*S*beta", kByNameOnly},
      {allgather, "bruck", allgather_bruck, "exchange over distances 1, 2, 4, ...: L*alpha + f*S*beta", kAutomatic},
      {allgather, "ring", allgather_ring, "each rank forwards the block received last: (p-1)*alpha + f*S*beta",
       kAutomatic},
      {reducescatter, "circulant", reducescatter_circulant,
       "Bruck's all-gather in reverse: L*alpha + f*S*(beta + gamma)", kAutomatic},
      {reducescatter, "ring", reducescatter_ring,
       "partial sums pass once around the ring: (p-1)*alpha + f*S*(beta + gamma)", kAutomatic},
      {alltoall, "direct", alltoall_direct,
       "every rank to every other rank, staggered, one round: (p-1)*alpha + f*S*beta", kAutomatic},
      {alltoall, "pairwise", alltoall_pairwise, "round i: send to r+i, receive from r-i: (p-1)*alpha + f*S*beta",
       kAutomatic},
      {alltoall, "bruck", alltoall_bruck,
       "blocks are sent over distances 1, 2, 4, ...: L*alpha + (L/2)*S*beta, equal blocks only", kAutomatic, false,
       kEqualBlocks},
      {barrier, "dissemination", barrier_dissemination, "send to r + 2^k, receive from r - 2^k: L*alpha", kAutomatic},
      {scan, "doubling", scan_doubling, "rank r sends its partial sum to r + 2^k: L*alpha + L*S*(beta + gamma)",
       kAutomatic},
      {exscan, "doubling", exscan_doubling,
       "each rank sends its data to the next, then a scan: (L+1)*alpha + (L+1)*S*beta + L*S*gamma", kAutomatic},
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

AlgorithmName::AlgorithmName(std::string_view text) : two_levels(text.starts_with(kTwoLevel)) {
  if (two_levels) text.remove_prefix(kTwoLevel.size());
  name = text;
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return;
  name = text.substr(0, colon);
  root = number;
}

std::string known_names(Collective collective) {
  std::string aliases, names, rooted;
  for (const Algorithm& a : algorithms()) {
    if (a.collective != collective) continue;
    if (!a.alias.empty() && !aliases.ends_with(concat(a.alias, ", "))) aliases += concat(a.alias, ", ");
    names += concat(a.name, ", ");
    if (a.any_root) rooted += concat(rooted.empty() ? "; " : ", ", a.name, ":ROOT");
  }
  names.resize(names.size() - 2);
  return aliases + names + rooted;
}

const Algorithm* find_algorithm(Collective collective, const AlgorithmName& name) {
  const auto found = name.name.empty() ? std::vector<const Algorithm*>{} : algorithms_named(collective, name);
  return found.empty() ? nullptr : found.back();
}

std::vector<const Algorithm*> algorithms_named(Collective collective, const AlgorithmName& name, bool every) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& a : algorithms()) {
    if (a.collective != collective || (name.root >= 0 && !a.any_root)) continue;
    const bool meant = a.name == name.name || a.alias == name.name;
    if (name.name.empty() ? a.automatic || every : meant) found.push_back(&a);
  }
  return found;
}

Schedule schedule_of(const Algorithm& algorithm, int rank, int size, int root) {
  if (size < 1 || rank < 0 || rank >= size || root < 0 || root >= size)
    throw invalid("rank ", rank, " and root ", root, " must be in 0..", size - 1);
  return algorithm.make(rank, size, algorithm.rooted() ? root : 0);
}

std::shared_ptr<const Schedule> schedule_for(Collective collective, const AlgorithmName& name, int rank, int size,
                                             int root) {
  const Algorithm* const algorithm = find_algorithm(collective, name);
  if (!algorithm) {
    throw invalid("there is no ", name_of(collective), " algorithm '", name.name,
                  "'; known: ", known_names(collective));
  }
  return std::make_shared<const Schedule>(schedule_of(*algorithm, rank, size, name.root >= 0 ? name.root : root));
}

}  // namespace ringcomm
