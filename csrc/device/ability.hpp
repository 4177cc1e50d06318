// Defines a rank's abilities with its device, which ranks exchange once per channel. From them
// every rank derives the same possible routes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hierarchical/hosts.hpp"

namespace ringcomm {

struct Ability {
  char uuid[16] = {};        // UUID of the rank's device
  std::int64_t process = 0;  // process id; a process can map only other processes' memory
  std::int32_t nccl = 0;     // NCCL's version; 0: not available
  std::uint8_t kernels = 0;  // 1 if our kernels are available
  std::uint8_t aware = 0;    // support of the rank's MPI for GPU addresses: 0, kReported or kProved
  std::uint8_t unused[2] = {};
};

inline constexpr std::uint8_t kReported = 1, kProved = 2;  // the library reports it; a test message confirmed it

bool share_gpus(const std::vector<Ability>& all);

// Return why ranks cannot use a route; empty if they can. `on_one_host`: all ranks share one host.
std::string why_no_ipc(const std::vector<Ability>& all, bool on_one_host);
std::string why_no_nccl(const std::vector<Ability>& all);
std::string why_no_levels(const std::vector<Ability>& all, const Hosts& hosts);
std::string why_no_aware(const std::vector<Ability>& all);

}  // namespace ringcomm
