// What a rank can do with its device, as ranks tell each other once on each channel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hierarchical/hosts.hpp"

namespace ringcomm {

struct Ability {
  char uuid[16] = {};        // of its device
  std::int64_t process = 0;  // processes map each other's memory, not their own
  std::int32_t nccl = 0;     // NCCL's version; 0: there is none
  std::uint8_t kernels = 0;  // there are ours
  std::uint8_t aware = 0;    // how far its MPI takes addresses of GPUs: kSaid, kProved
  std::uint8_t unused[2] = {};
};

inline constexpr std::uint8_t kSaid = 1, kProved = 2;  // by what the library says; by a message that has arrived

bool share_gpus(const std::vector<Ability>& all);

// Why ranks cannot go this way; empty: they can. `on_one_host`: all of them are.
std::string why_no_ipc(const std::vector<Ability>& all, bool on_one_host);
std::string why_no_nccl(const std::vector<Ability>& all);
std::string why_no_levels(const std::vector<Ability>& all, const Hosts& hosts);
std::string why_no_aware(const std::vector<Ability>& all);

}  // namespace ringcomm
