// Decides from all ranks' abilities which routes for GPU arrays are possible.
#include "device/ability.hpp"

#include <algorithm>
#include <set>

#include "device/kernels/parameters.hpp"

namespace ringcomm {
namespace {

// Returns why our kernels cannot reduce all ranks' arrays in one launch; empty if they can.
std::string why_no_reduction(const std::vector<Ability>& all) {
  if (all.size() > gpu::kMostPointers) return "more than " + std::to_string(gpu::kMostPointers) + " ranks";
  const bool kernels = std::ranges::all_of(all, [](const Ability& ability) { return ability.kernels != 0; });
  return kernels ? "" : "a rank has no kernels for its GPU";
}

}  // namespace

std::string why_no_ipc(const std::vector<Ability>& all, bool on_one_host) {
  if (!on_one_host) return "ranks are on several hosts, or share no memory";
  if (const std::string why_not = why_no_reduction(all); !why_not.empty()) return why_not;
  std::set<std::int64_t> processes;
  for (const Ability& ability : all) processes.insert(ability.process);
  return processes.size() == all.size() ? "" : "ranks are threads of one process";
}

bool share_gpus(const std::vector<Ability>& all) {
  std::set<std::string> devices;
  for (const Ability& ability : all) devices.insert(std::string(ability.uuid, sizeof ability.uuid));
  return devices.size() < all.size();
}

std::string why_no_nccl(const std::vector<Ability>& all) {
  if (share_gpus(all)) return "ranks share a GPU, which NCCL refuses";
  if (!std::ranges::all_of(all, [](const Ability& ability) { return ability.nccl > 0; })) return "a rank has no NCCL";
  const auto other = [&](const Ability& ability) { return ability.nccl / 100 != all[0].nccl / 100; };
  return std::ranges::any_of(all, other) ? "ranks have different versions of NCCL" : "";
}

// Returns why ranks cannot use the hierarchical route, `levels`; empty if they can. The route
// requires that the devices of each host communicate directly. Through host memory the levels would
// only add steps.
std::string why_no_levels(const std::vector<Ability>& all, const Hosts& hosts) {
  if (hosts.number() < 2) return "ranks are on one host, or share no memory within their hosts";
  for (int host = 0; host < hosts.number(); ++host) {
    if (static_cast<int>(hosts.of(host).size()) != hosts.lanes()) return "hosts have different numbers of ranks";
    if (hosts.lanes() == 1) return "hosts have one rank each";
    std::vector<Ability> there;
    for (const int rank : hosts.of(host)) there.push_back(all[static_cast<std::size_t>(rank)]);
    if (why_no_nccl(there).empty()) continue;
    if (const std::string why_not = why_no_ipc(there, true); !why_not.empty()) return "on one host, " + why_not;
  }
  return "";
}

std::string why_no_aware(const std::vector<Ability>& all) {
  if (const std::string why_not = why_no_reduction(all); !why_not.empty()) return why_not;
  const auto all_have = [&](int least) {
    return std::ranges::all_of(all, [&](const Ability& ability) { return ability.aware >= least; });
  };
  if (!all_have(kReported)) return "a rank's MPI does not report that it is GPU-aware";
  return all_have(kProved) ? "" : "MPI reports that it is GPU-aware, but a test message in GPU memory did not arrive";
}

}  // namespace ringcomm
