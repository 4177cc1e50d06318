// Defines the base class of collectives on two levels through staging memory.
#pragma once

#include <memory>

#include "hierarchical/host_blocks.hpp"
#include "hierarchical/two_level.hpp"
#include "host_collectives/host_arrays.hpp"
#include "host_collectives/staged_pass.hpp"

namespace ringcomm {

// Derived classes write the lane's slices of a segment to this rank's staging memory, where the
// network exchanges them. Then every rank of the host may read the slices of all lanes.
class TwoLevelPass : public StagedPass {
 public:
  void abandon() noexcept final;

 protected:
  // `brings`: this rank writes its own data to its staging memory. A rank with a lane needs staging
  // memory in any case.
  TwoLevelPass(Epochs& epochs, const Call& call, LaneRun lane, HostBlocks blocks, bool brings);
  virtual void fill_lane(std::size_t k) = 0;  // called only if this rank has a lane

  const Hosts& hosts() const { return lane_.hosts; }
  int lanes() const { return lane_.hosts.lanes(); }
  bool in_lane() const { return lane_.has(); }
  bool coarsens() const { return lane_.options.codec != nullptr; }  // results differ from the data sent
  std::byte* of_lane(int lane, std::size_t k) { return lane == me() ? input(k) : input_of(lane, k); }
  std::size_t blocks() const { return blocks_.cuts().blocks(); }
  // Returns whether ranks of this host own a block: their input is the block or a part of it
  // (broadcast, allgather), or they receive its result (the other collectives).
  bool is_home(std::size_t block) const;
  // Returns the local rank that owns a piece which HostBlocks::visit() assigns to `rank`. In an
  // all-reduce each rank owns all pieces, so returns this rank.
  int owner(int rank) const;

  const HostBlocks blocks_;

 private:
  std::size_t segments() final { return blocks_.cuts().segments(); }
  void work(std::size_t k) final;
  bool progress() final { return network_ && finished_ < segments() && network_->advance() != Progress::blocked; }
  bool has_result(std::size_t k) final { return !in_lane() || finished_ > k; }
  ErrorKind refusal() const final { return ErrorKind::transport; }  // fatal: other hosts wait for this one

  const LaneRun lane_;
  std::unique_ptr<Task> network_;
  std::size_t filled_ = 0, finished_ = 0;  // numbers of segments
};

// Make the passes of allreduce, reduce and reducescatter; of broadcast and allgather.
std::unique_ptr<TwoLevelPass> make_two_level_reduction(Epochs& epochs, const Call& call, LaneRun lane);
std::unique_ptr<TwoLevelPass> make_two_level_move(Epochs& epochs, const Call& call, LaneRun lane);

// Makes the task for an all-reduce in which all arrays of this host are in shared memory.
std::unique_ptr<Task> make_two_level_in_place(Epochs& epochs, const Call& call, LaneRun lane, HostArrays arrays);

}  // namespace ringcomm
