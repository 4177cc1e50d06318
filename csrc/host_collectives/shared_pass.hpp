// All-reduce in place on arrays that all lie in their host's shared memory: nothing is copied in.
#pragma once

#include <span>
#include <vector>

#include "base/call.hpp"
#include "host_collectives/closing_pass.hpp"
#include "host_collectives/host_arrays.hpp"

namespace ringcomm {

// All inputs are ready when it is made. Each rank reduces its slice from everybody's array into everybody's array,
// where nobody else touches it, and says by an arrival that its stores are done: two arrivals are all that ranks wait
// for. Each byte is read once and written once by one rank: 2pS over the host's bandwidth, the lower bound.
class SharedPass : public ClosingPass {
 public:
  SharedPass(Epochs& epochs, const Call& call, HostArrays arrays);

 protected:
  Progress work() override;  // stores to all arrays
  // Into the targets, which all get it. Sources are in the order of ranks, so that every slice has one operand order.
  void reduce(std::span<std::byte* const> sources, std::span<void* const> targets, std::size_t count,
              const kernels::Scale& post);

  const Call& call_;
  const std::size_t item_;
  const HostArrays arrays_;

 private:
  std::vector<void*> targets_;
  std::vector<const void*> sources_;
  const Part slice_;
  std::size_t done_ = 0;  // elements of it
};

}  // namespace ringcomm
