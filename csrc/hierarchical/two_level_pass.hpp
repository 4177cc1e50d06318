// What collectives on two levels have in common.
#pragma once

#include <memory>

#include "hierarchical/host_blocks.hpp"
#include "hierarchical/two_level.hpp"
#include "host_collectives/host_arrays.hpp"
#include "host_collectives/staged_pass.hpp"

namespace ringcomm {

// Kinds fill their lane's slices of a segment in this rank's staging memory, the network works on them there, and then
// every rank of the host may take what it wants of all lanes.
class TwoLevelPass : public StagedPass {
 public:
  void abandon() noexcept final;

 protected:
  // `brings`: this rank puts something of its own into its staging memory; whoever has a lane needs some anyway.
  TwoLevelPass(Epochs& epochs, const Call& call, LaneRun lane, HostBlocks blocks, bool brings);
  virtual void fill_lane(std::size_t k) = 0;  // called in a lane only

  const Hosts& hosts() const { return lane_.hosts; }
  int lanes() const { return lane_.hosts.lanes(); }
  bool in_lane() const { return lane_.has(); }
  bool coarsens() const { return lane_.options.codec != nullptr; }  // what comes back is not what was sent
  std::byte* of_lane(int lane, std::size_t k) { return lane == me() ? input(k) : input_of(lane, k); }
  std::size_t blocks() const { return blocks_.cuts().blocks(); }
  // Whether ranks of this host give or take (parts of) a block: all of it, or all that a host does.
  bool is_home(std::size_t block) const;
  // Which of them does, of what HostBlocks::visit says is `rank`'s. Of an all-reduce everybody.
  int owner(int rank) const;

  const HostBlocks blocks_;

 private:
  std::size_t segments() final { return blocks_.cuts().segments(); }
  void work(std::size_t k) final;
  bool progress() final { return network_ && finished_ < segments() && network_->advance() != Progress::blocked; }
  bool settled(std::size_t k) final { return !in_lane() || finished_ > k; }
  bool arrived(std::uint32_t epoch) final { return arrived_here(epochs(), epoch, lane_.hosts); }
  ErrorKind refusal() const final { return ErrorKind::transport; }  // other hosts wait, and do not know

  const LaneRun lane_;
  std::unique_ptr<Task> network_;
  std::size_t filled_ = 0, finished_ = 0;  // segments
};

// Allreduce, reduce, reducescatter; broadcast, allgather.
std::unique_ptr<TwoLevelPass> make_two_level_reduction(Epochs& epochs, const Call& call, LaneRun lane);
std::unique_ptr<TwoLevelPass> make_two_level_move(Epochs& epochs, const Call& call, LaneRun lane);

// All-reduce where all arrays of this host are shared.
std::unique_ptr<Task> make_two_level_in_place(Epochs& epochs, const Call& call, LaneRun lane, HostArrays arrays);

}  // namespace ringcomm
