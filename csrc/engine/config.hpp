// The configuration of an engine. Engine's constructor takes it.
#pragma once

#include <cstddef>

#include "collectives/channel.hpp"

namespace ringcomm {

// Identical on all ranks.
struct EngineConfig {
  std::size_t fusion_bytes = 64 << 20;  // bytes of the largest fused bucket
  std::size_t cache_capacity = 4096;    // names that each set remembers
  double stall_warn_seconds = 60;       // 0: never
  double stall_fail_seconds = 0;        // 0: never
  ChannelConfig channel;
};

}  // namespace ringcomm
