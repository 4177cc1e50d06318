// Implements ReadPass: copies block by block from arenas, or from peers' private memory by system
// calls.
#include "host_collectives/read_pass.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/rank_text.hpp"
#include "base/tuned.hpp"
#include "host_collectives/staging_area.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {

// Bytes per read. The fixed cost of a system call is small beside this copy. A call takes at most a
// millisecond, so that a worker soon serves its other operations.
constexpr std::size_t kPiece = 4 << 20;
constexpr std::int64_t kLossIsSeen = 1'000'000'000;  // ns after a failed read; a peer's death is reported by then

ReadPass::ReadPass(Epochs& epochs, std::uint32_t epoch, std::vector<ReadableBlock> blocks)
    : ClosingPass(epochs), begun_(epoch), blocks_(std::move(blocks)) {
  std::size_t nbytes = 0;
  for (const ReadableBlock& block : blocks_) nbytes += block.nbytes;
  past_caches_ = nbytes >= kManySegments * kMemorySegment;
}

Progress ReadPass::work() {
  if (!why_not_.empty()) {
    wait_for_loss();
    return Progress::blocked;
  }
  if (block_ == blocks_.size()) return Progress::done;
  read_on();
  return Progress::moved;
}

void ReadPass::read_on() {
  const ReadableBlock& block = blocks_[block_];
  const std::size_t count = std::min(kPiece, block.nbytes - done_);
  if (block.here) {
    kernels::copy(block.target + done_, block.here + done_, count, past_caches_);
  } else if (!PeerMemory::read(block.card, block.there + done_, block.target + done_, count)) {
    why_not_ = "the memory of " + rank_text(std::vector<int>{block.giver}) + " on this host can no longer be read";
    failed_ns_ = now_ns();
    return;
  }
  if (block.giver != epochs_.node().rank()) epochs_.copied += count;
  done_ += count;
  if (done_ < block.nbytes) return;
  ++block_;
  done_ = 0;
}

// Waits for the peer monitor to report a dead peer. Unreadable memory most likely belongs to a
// process that has ended, and the death is the better error.
void ReadPass::wait_for_loss() {
  epochs_.reached(begun_ + 1);
  if (now_ns() - failed_ns_ > kLossIsSeen) throw Error(ErrorKind::transport, why_not_);
}

}  // namespace ringcomm
