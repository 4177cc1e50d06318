// Implements SharedPass: reduces this rank's slice from all inputs into all outputs.
#include "host_collectives/shared_pass.hpp"

#include <algorithm>

#include "base/tuned.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

SharedPass::SharedPass(Epochs& epochs, const Call& call, HostArrays arrays)
    : ClosingPass(epochs), call_(call), item_(size_of(call.dtype)), arrays_(std::move(arrays)),
      targets_(arrays_.ranks()), sources_(arrays_.ranks()),
      slice_(slice_of(call.count, item_, epochs.node().size(), epochs.node().rank())) {}

Progress SharedPass::work() {
  const Part part{slice_.first + done_, std::min(kMemorySegment / item_, slice_.count - done_)};
  arrays_.each(part, [&](const HostArrays::Places& places, std::size_t, std::size_t count) {
    std::ranges::copy(places.outputs, targets_.begin());
    reduce(places.inputs, targets_, count, call_.post);
  });
  done_ += part.count;
  return done_ < slice_.count ? Progress::moved : Progress::done;
}

void SharedPass::reduce(std::span<std::byte* const> sources, std::span<void* const> targets, std::size_t count,
                        const kernels::Scale& post) {
  std::copy(sources.begin(), sources.end(), sources_.begin());
  kernels::reduce_many(call_.dtype, call_.op, targets, sources_, count, call_.pre, post);
  epochs_.copied += (sources.size() - 1 + targets.size() - 1) * count * item_;
}

}  // namespace ringcomm
