// Implements the staged collectives that reduce complete arrays: allreduce, reduce.
#include <algorithm>
#include <memory>

#include "host_collectives/scattered.hpp"
#include "host_collectives/staged_pass.hpp"

namespace ringcomm {
namespace {

// A pass in which each rank reduces its slice of a segment. The sources, and also the targets, are
// the array of this rank and the inputs of its peers (staged_pass.hpp). Then the rank copies the
// other slices from its input to its array. In a reduce only the root does this.
class Allreduce final : public StagedPass {
 public:
  Allreduce(Epochs& epochs, const Call& call, const Cuts& cuts)
      : StagedPass(epochs, call, true, cuts.longest_cut() * size_of(call.dtype)), cuts_(cuts),
        array_(whole_, call_.fragments, item_) {}

 private:
  bool wanted() const { return call_.collective == Collective::allreduce || call_.root == me(); }
  std::size_t segments() override { return cuts_.segments(); }
  // A result that replaces the input is in the caches.
  bool past(const Scattered::Piece& to) const { return past_caches() && !to.in_place(); }

  // Calls visit(piece, first) for each piece of a segment outside the rank's own slice, which stays
  // in the rank's array. `first`: the piece's first element in the segment.
  template <class Visit>
  void outside_own(std::size_t k, Visit visit) const {
    const Part segment = cuts_.cut(k), own = slice_of(segment.count, item_, ranks(), me());
    for (const Part part : {Part{0, own.first}, Part{own.end(), segment.count - own.end()}}) {
      array_.each({segment.first + part.first, part.count},
                  [&](const Scattered::Piece& piece, std::size_t before) { visit(piece, part.first + before); });
    }
  }

  void copy_in(std::size_t k) override {
    outside_own(k, [&](const Scattered::Piece& from, std::size_t first) {
      kernels::copy(input(k) + first * item_, from.input, from.count * item_);
      tally(from.count * item_);
    });
  }

  void work(std::size_t k) override {
    const Part segment = cuts_.cut(k), own = slice_of(segment.count, item_, ranks(), me());
    array_.each({segment.first + own.first, own.count}, [&](const Scattered::Piece& home, std::size_t before) {
      reduce(k, home, (own.first + before) * item_);
    });
  }

  // Reduces block by block, through the L1 cache. Sources are in rank order, so that every slice
  // has the same operand order.
  void reduce(std::size_t k, const Scattered::Piece& home, std::size_t begin) {
    alignas(64) std::byte scratch[kBlock];
    const bool streamed = past(home);
    tally(2 * static_cast<std::size_t>(ranks() - 1) * home.count * item_);  // the peers' slices, read and written
    for (std::size_t done = 0; done < home.count; done += kBlock / item_) {
      const std::size_t count = std::min(kBlock / item_, home.count - done);
      std::byte* const output = wanted() ? home.output + done * item_ : scratch;
      sources_.clear();
      targets_.clear();
      for (int rank = 0; rank < ranks(); ++rank) {
        const bool mine = rank == me();
        std::byte* const peers = mine ? nullptr : input_of(rank, k) + begin + done * item_;
        sources_.push_back(mine ? home.input + done * item_ : peers);
        targets_.push_back(mine ? (streamed ? scratch : output) : peers);
      }
      kernels::reduce_many(call_.dtype, call_.op, targets_, sources_, count, call_.pre, call_.post);
      if (wanted() && streamed) kernels::copy(output, scratch, count * item_, true);
    }
  }

  void finish(std::size_t k) override {
    if (!wanted()) return;
    outside_own(k, [&](const Scattered::Piece& to, std::size_t first) {
      kernels::copy_taking(to.output, input(k) + first * item_, to.count * item_, past(to));
      tally(to.count * item_);
    });
  }

  static constexpr std::size_t kBlock = 8 << 10;
  const Cuts cuts_;
  const Fragment whole_{call_.input, call_.output, call_.count};
  const Scattered array_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace

std::unique_ptr<StagedPass> make_staged_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  const Collective c = call.collective;
  if (c == Collective::allreduce || c == Collective::reduce)
    return std::make_unique<Allreduce>(epochs, call, Cuts(call.count, cut_for(segment_bytes, size_of(call.dtype))));
  if (c == Collective::broadcast || c == Collective::allgather) return make_staged_move(epochs, call, segment_bytes);
  if (c == Collective::reducescatter || c == Collective::alltoall)
    return make_staged_exchange(epochs, call, segment_bytes);
  if (is_scan(c)) return make_staged_scan(epochs, call, segment_bytes);
  throw Error(ErrorKind::internal, concat(name_of(c), " has no implementation in staging memory"));
}

}  // namespace ringcomm
