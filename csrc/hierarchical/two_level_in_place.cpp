// Implements all-reduce on two levels for arrays that are all in their host's shared memory. No
// staging memory is used.

#include "base/aligned_bytes.hpp"
#include "hierarchical/two_level_pass.hpp"
#include "host_collectives/shared_pass.hpp"

namespace ringcomm {
namespace {

// A rank in a lane reduces the lane's slice of each segment from all inputs of its host into its
// output. There the schedule between hosts exchanges the slice. Then the rank stores the result
// into the other outputs of the host.
class TwoLevelShared final : public SharedPass {
 public:
  TwoLevelShared(Epochs& epochs, const Call& call, LaneRun lane, HostArrays arrays)
      : SharedPass(epochs, call, std::move(arrays)), lane_(std::move(lane)),
        cuts_(call.count, cut_for(lane_.segment_bytes, item_)), buffer_slots_(lane_.options.window + 2) {
    const auto where = [this](std::size_t, std::size_t k) { return Extent{home(k), slice(k).count, slice(k).first}; };
    network_ = lane_.start(cuts_.segments(), item_, where, reduced_, finished_);
  }

  void abandon() noexcept override {
    if (network_) network_->abandon();
  }

 private:
  Part slice(std::size_t k) const {  // in the array
    const Part segment = cuts_.cut(k), own = slice_of(segment.count, item_, lane_.hosts.lanes(), epochs_.node().rank());
    return {segment.first + own.first, own.count};
  }

  Progress work() override {
    if (!network_ || spread_ == cuts_.segments()) return Progress::done;
    bool moved = finished_ < cuts_.segments() && network_->advance() != Progress::blocked;
    moved |= reduce_next();
    moved |= store_next();
    return spread_ == cuts_.segments() ? Progress::done : moved ? Progress::moved : Progress::blocked;
  }

  // Returns the address of the lane's slice of a segment in this rank's array. If the slice spans
  // several fragments of the array, returns a buffer instead. The few segments in flight share it.
  std::byte* home(std::size_t k) {
    const Part own = slice(k);
    if (std::byte* const here = arrays_.output_of(me_, own)) return here;
    const std::size_t room = round_up(slice(0).count * item_, kLine);
    if (!buffer_) buffer_ = aligned_bytes(buffer_slots_ * room);
    return buffer_.get() + k % buffer_slots_ * room;
  }

  // Reduces the next segment. Runs ahead of the network by little more than its window, so that the
  // network reads the segment while it is in the caches.
  bool reduce_next() {
    const bool far = reduced_ - finished_ > lane_.options.window || reduced_ - spread_ >= buffer_slots_;
    if (reduced_ == cuts_.segments() || far) return false;
    std::byte* const to = home(reduced_);
    arrays_.each(slice(reduced_++), [&](const HostArrays::Places& places, std::size_t done, std::size_t count) {
      void* const target = to + done * item_;
      reduce(places.inputs, {&target, 1}, count, {});
    });
    return true;
  }

  bool store_next() {
    if (spread_ == finished_) return false;
    const std::byte* const from = home(spread_);
    arrays_.each(slice(spread_++), [&](const HostArrays::Places& places, std::size_t done, std::size_t count) {
      const std::byte* const result = from + done * item_;
      for (std::byte* const array : places.outputs) {
        if (array == result) continue;
        kernels::copy(array, result, count * item_, cuts_.segments() >= kManySegments);
        epochs_.copied += count * item_;
      }
    });
    return true;
  }

  const LaneRun lane_;
  const Cuts cuts_;
  const std::size_t me_ = static_cast<std::size_t>(epochs_.node().rank());
  const std::size_t buffer_slots_;
  std::shared_ptr<std::byte[]> buffer_;
  std::unique_ptr<Task> network_;
  std::size_t reduced_ = 0, finished_ = 0, spread_ = 0;  // numbers of segments
};

}  // namespace

std::unique_ptr<Task> make_two_level_in_place(Epochs& epochs, const Call& call, LaneRun lane, HostArrays arrays) {
  return std::make_unique<TwoLevelShared>(epochs, call, std::move(lane), std::move(arrays));
}

}  // namespace ringcomm
