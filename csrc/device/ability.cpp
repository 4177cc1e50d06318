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
  const bool kernels = std::ranges::all_of(all, [](const Ability& one) { return one.kernels != 0; });
  return kernels ? "" : "a rank has no kernels for its GPU";
}

}  // namespace

std::string why_no_ipc(const std::vector<Ability>& all, bool on_one_host) {
  if (!on_one_host) return "ranks are on several hosts, or share no memory";
  if (const std::string why_not = why_no_reduction(all); !why_not.empty()) return why_not;
  std::set<std::int64_t> processes;
  for (const Ability& one : all) processes.insert(one.process);
  return processes.size() == all.size() ? "" : "ranks are threads of one process";
}

bool share_gpus(const std::vector<Ability>& all) {
  std::set<std::string> devices;
  for (const Ability& one : all) devices.insert(std::string(one.uuid, sizeof one.uuid));
  return devices.size() < all.size();
}

std::string why_no_nccl(const std::vector<Ability>& all) {
  if (share_gpus(all)) return "ranks share a GPU, which NCCL refuses";
  if (!std::ranges::all_of(all, [](const Ability& one) { return one.nccl > 0; })) return "a rank has no NCCL";
  const auto other = [&](const Ability& one) { return one.nccl / 100 != all[0].nccl / 100; };
  return std::ranges::any_of(all, other) ? "ranks have different versions of NCCL" : "";
}

// Returns why ranks cannot use levels; empty if they can. Levels require device communication
// within hosts. Through host memory they would only add steps.
std::string why_no_levels(const std::vector<Ability>& all, const Hosts& hosts) {
  if (hosts.number() < 2) return "ranks are on one host, or on hosts without memory in common";
  for (int host = 0; host < hosts.number(); ++host) {
    if (static_cast<int>(hosts.of(host).size()) != hosts.lanes()) return "hosts have different numbers of ranks";
    if (hosts.lanes() == 1) return "hosts have one rank each";
    std::vector<Ability> there;
    for (const int rank : hosts.of(host)) there.push_back(all[static_cast<std::size_t>(rank)]);
    if (why_no_nccl(there).empty()) continue;
    if (const std::string why_not = why_no_ipc(there, true); !why_not.empty()) return "on a host " + why_not;
  }
  return "";
}

std::string why_no_aware(const std::vector<Ability>& all) {
  if (const std::string why_not = why_no_reduction(all); !why_not.empty()) return why_not;
  const auto all_have = [&](int least) {
    return std::ranges::all_of(all, [&](const Ability& one) { return one.aware >= least; });
  };
  if (!all_have(kSaid)) return "a rank's MPI does not say that it takes addresses of GPUs";
  return all_have(kProved) ? ""
                           : "MPI says that it takes addresses of GPUs, but a message that tried it did not arrive";
}

}  // namespace ringcomm
