// Runs an all-reduce on arrays that are all in their host's shared memory, without a copy.
#pragma once

#include <span>
#include <vector>

#include "base/call.hpp"
#include "host_collectives/closing_pass.hpp"
#include "host_collectives/host_arrays.hpp"

namespace ringcomm {

// A pass that is created after all ranks have arrived with their inputs. Each rank reduces its
// slice from all ranks' arrays into all ranks' arrays; no other rank touches that slice. The ranks
// then arrive a second time (ClosingPass), which publishes that their stores are done. Each byte is
// read once and written once, by one rank. So p arrays of S bytes cost 2pS bytes of memory traffic
// in place, the minimum.
class SharedPass : public ClosingPass {
 public:
  SharedPass(Epochs& epochs, const Call& call, HostArrays arrays);

 protected:
  Progress work() override;  // stores to all arrays
  // Reduces into all targets. Sources are in rank order, so that every slice has the same operand
  // order.
  void reduce(std::span<std::byte* const> sources, std::span<void* const> targets, std::size_t count,
              const kernels::Scale& post);

  const Call& call_;
  const std::size_t item_;
  const HostArrays arrays_;

 private:
  std::vector<void*> targets_;
  std::vector<const void*> sources_;
  const Part slice_;
  std::size_t done_ = 0;  // elements of the slice
};

}  // namespace ringcomm
