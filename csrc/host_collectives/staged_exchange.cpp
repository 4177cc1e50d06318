// Implements the staged collectives in which each rank has a block for every other rank:
// reducescatter, alltoall.
#include <cstring>
#include <memory>

#include "host_collectives/kept_input.hpp"
#include "host_collectives/staged_pass.hpp"

namespace ringcomm {
namespace {

// A pass with segments that hold a cut of the block for each peer.
class Exchange : public StagedPass {
 public:
  Exchange(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : Exchange(epochs, call, Cuts(call.counts, cut_for(segment_bytes, size_of(call.dtype), call.counts.size()))) {}

 protected:
  void copy_in(std::size_t k) final {
    for (std::size_t rank = 0; rank < sent_.blocks(); ++rank) {
      const Part cut = sent_.cut(rank, k);
      if (rank == own_) continue;
      to_peers(input(k) + sent_.slot(rank) * item_, given_.from(cut.first * item_), cut.count * item_);
    }
  }
  // Returns the data that `rank` has for this rank. A block has the same slot on all ranks.
  const std::byte* from(int rank, std::size_t k) {
    return rank == me() ? given_.from(sent_.cut(own_, k).first * item_) : input_of(rank, k) + sent_.slot(own_) * item_;
  }

  const KeptInput given_;
  const Cuts sent_;
  const std::size_t own_ = static_cast<std::size_t>(me());  // this rank's block

 private:
  Exchange(Epochs& epochs, const Call& call, Cuts sent)
      : StagedPass(epochs, call, false, sent.segment() * size_of(call.dtype)), given_(call, me()),
        sent_(std::move(sent)) {}
};

class Reducescatter final : public Exchange {
 public:
  using Exchange::Exchange;

 private:
  std::size_t segments() override { return sent_.segments(); }
  void work(std::size_t k) override {
    const Part cut = sent_.cut(own_, k);
    if (cut.count == 0) return;
    sources_.clear();
    for (int rank = 0; rank < ranks(); ++rank) sources_.push_back(from(rank, k));
    void* const target = at(call_.output, (cut.first - sent_.start(own_)) * item_);
    kernels::reduce_many(call_.dtype, call_.op, {&target, 1}, sources_, cut.count, call_.pre, call_.post);
    tally((sources_.size() - 1) * cut.count * item_);
  }

  std::vector<const void*> sources_;
};

// Unless blocks are known to be even, ranks know only their own row and column of the matrix of
// counts. So each rank publishes the length of its longest block at the end of its mailbox's
// payload.
class Alltoall final : public Exchange {
 public:
  Alltoall(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : Exchange(epochs, call, segment_bytes), received_(call.receive_counts, sent_.each()) {
    if (call.even) return;
    const std::uint64_t longest = sent_.longest();
    std::memcpy(published_longest(me()), &longest, sizeof longest);
  }

 private:
  std::byte* published_longest(int rank) { return epochs().mailbox(rank).payload[epochs().parity()] + kPayload - 8; }
  std::size_t segments() override {
    if (call_.even) return sent_.segments();
    std::size_t longest = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      std::uint64_t its = 0;
      std::memcpy(&its, published_longest(rank), sizeof its);
      longest = std::max<std::size_t>(longest, its);
    }
    return cuts_in(longest, sent_.each());
  }
  void work(std::size_t k) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = received_.cut(static_cast<std::size_t>(rank), k);
      std::byte* const target = at(call_.output, cut.first * item_);
      if (rank == me())
        kernels::copy(target, from(rank, k), cut.count * item_, past_caches());
      else
        from_peer(target, from(rank, k), cut.count * item_);
    }
  }

  const Cuts received_;
};

}  // namespace

std::unique_ptr<StagedPass> make_staged_exchange(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  if (call.collective == Collective::alltoall) return std::make_unique<Alltoall>(epochs, call, segment_bytes);
  return std::make_unique<Reducescatter>(epochs, call, segment_bytes);
}

}  // namespace ringcomm
