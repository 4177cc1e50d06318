// What collectives on two levels have in common.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "levels/two_level.hpp"
#include "memory/staged_kinds.hpp"
#include "node/node.hpp"

namespace ringcomm {

// A buffer in segments, and of each a slice for every lane.
class LaneSlices {
 public:
  LaneSlices(const Call& call, const LaneRun& lane)
      : count_(call.count), item_(size_of(call.dtype)),
        per_segment_(std::max(kLine, lane.segment_bytes / kLine * kLine) / item_), lanes_(lane.hosts.lanes()) {}
  std::size_t segments() const { return std::max<std::size_t>(1, pieces(count_, per_segment_)); }
  std::size_t bytes() const { return std::min(count_, per_segment_) * item_; }  // of the longest segment
  std::size_t start(std::size_t k) const { return k * per_segment_; }           // in elements, as all below
  std::size_t length(std::size_t k) const { return std::min(per_segment_, count_ - start(k)); }
  Part slice(std::size_t k, int lane) const { return slice_of(length(k), item_, lanes_, lane); }  // in its segment

 private:
  std::size_t count_, item_, per_segment_;
  int lanes_;
};

// Kinds fill their lane's blocks of a segment in this rank's staging memory, the network works on them there, and then
// every rank of the host may take what it wants of all lanes.
class TwoLevelPass : public StagedPass {
 public:
  // `inputs`: bytes of staging that a segment takes on this rank.
  TwoLevelPass(Epochs& epochs, const Call& call, LaneRun lane, std::size_t inputs, std::size_t number);
  void abandon() noexcept final;

 protected:
  virtual Layout lane_layout(const Schedule& plan) = 0;  // of this rank's lane
  virtual void fill_lane(std::size_t k) = 0;             // called in a lane only

  const Hosts& hosts() const { return lane_.hosts; }
  int root() const { return lane_.local_root; }
  int lanes() const { return lane_.hosts.lanes(); }
  bool in_lane() const { return lane_.has(); }
  bool coarsens() const { return lane_.options.codec != nullptr; }  // what comes back is not what was sent
  std::byte* of_lane(int lane, std::size_t k) { return lane == me() ? input(k) : input_of(lane, k); }

 private:
  std::size_t segments() final { return number_; }
  void work(std::size_t k) final;
  bool progress() final { return network_ && finished_ < number_ && network_->advance() != Progress::blocked; }
  bool settled(std::size_t k) final { return !in_lane() || finished_ > k; }
  bool arrived(std::uint32_t epoch) final { return arrived_here(epochs(), epoch, lane_.hosts); }
  ErrorKind refusal() const final { return ErrorKind::transport; }  // other hosts wait, and do not know

  const LaneRun lane_;
  const std::size_t number_;
  std::unique_ptr<Task> network_;
  std::size_t filled_ = 0, finished_ = 0;  // segments
};

// Of one buffer: all-reduce, reduce, broadcast.
class SlicedPass : public TwoLevelPass {
 protected:
  SlicedPass(Epochs& epochs, const Call& call, LaneRun lane, std::size_t inputs, const LaneSlices& cuts)
      : TwoLevelPass(epochs, call, std::move(lane), inputs, cuts.segments()), cuts_(cuts) {}

  const LaneSlices cuts_;

 private:
  Layout lane_layout(const Schedule& plan) final;
};

// Of one block per rank: all-gather, reduce-scatter. A segment is a cut of every host's blocks, of which each lane has
// a slice.
class BlocksPass : public TwoLevelPass {
 protected:
  BlocksPass(Epochs& epochs, const Call& call, const LaneRun& lane)
      : BlocksPass(epochs, call, lane, {lane.hosts, call.counts, size_of(call.dtype), lane.segment_bytes}) {}
  int host() const { return hosts().mine(); }
  Part slice(int host, std::size_t k, int lane) const {
    return slice_of(blocks_.length(host, k), item_, lanes(), lane);
  }

  const HostBlocks blocks_;

 private:
  BlocksPass(Epochs& epochs, const Call& call, const LaneRun& lane, HostBlocks blocks)
      : TwoLevelPass(epochs, call, lane, blocks.bytes(), blocks.segments()), blocks_(std::move(blocks)) {}
  Layout lane_layout(const Schedule& plan) final;
};

// of any kind
std::unique_ptr<TwoLevelPass> make_two_level_reduction(Epochs& epochs, const Call& call, LaneRun lane);
// broadcast, allgather
std::unique_ptr<TwoLevelPass> make_two_level_move(Epochs& epochs, const Call& call, LaneRun lane);

// All-reduce where all arrays of this host are shared; offsets as in make_shared_pass.
std::unique_ptr<Task> make_two_level_in_place(Epochs& epochs, const Call& call, LaneRun lane,
                                              std::vector<std::uint64_t> offsets);

}  // namespace ringcomm
