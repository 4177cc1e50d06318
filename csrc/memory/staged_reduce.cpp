// The staged collectives that compute: allreduce, reduce, reducescatter.
#include <algorithm>
#include <memory>

#include "memory/kept_input.hpp"
#include "memory/scattered.hpp"
#include "memory/staged_pass.hpp"

namespace ringcomm {
namespace {

// Each rank reduces its own slice of a segment, from its own array and the peers' inputs, into its own array and the
// peers' inputs; then copies out the others' slices, which have come into its own. With a root, only it does so.
class Allreduce final : public StagedPass {
 public:
  Allreduce(Epochs& epochs, const Call& call, const Cuts& cuts)
      : StagedPass(epochs, call, true, cuts.longest_cut() * size_of(call.dtype)), cuts_(cuts),
        array_(whole_, call_.fragments, item_) {}

 private:
  bool wanted() const { return call_.collective == Collective::allreduce || call_.root == me(); }
  std::size_t segments() override { return cuts_.segments(); }
  // Where the result takes the input's place, it is in the caches.
  bool past(const Scattered::Piece& to) const { return past_caches() && !to.in_place(); }

  // The segment less the rank's own slice, which it reads at home: two parts. visit(piece, its first element in the
  // segment).
  template <class Visit>
  void around_own(std::size_t k, Visit visit) const {
    const Part segment = cuts_.cut(k), own = slice_of(segment.count, item_, ranks(), me());
    for (const Part part : {Part{0, own.first}, Part{own.end(), segment.count - own.end()}}) {
      array_.each({segment.first + part.first, part.count},
                  [&](const Scattered::Piece& piece, std::size_t before) { visit(piece, part.first + before); });
    }
  }

  void copy_in(std::size_t k) override {
    around_own(k, [&](const Scattered::Piece& from, std::size_t first) {
      kernels::copy(input(k) + first * item_, from.input, from.count * item_);
    });
  }

  void work(std::size_t k) override {
    const Part segment = cuts_.cut(k), own = slice_of(segment.count, item_, ranks(), me());
    array_.each({segment.first + own.first, own.count}, [&](const Scattered::Piece& home, std::size_t before) {
      reduce(k, home, (own.first + before) * item_);
    });
  }

  // Block by block through the L1 cache. Sources in rank order, so that every slice has one operand order.
  void reduce(std::size_t k, const Scattered::Piece& home, std::size_t begin) {
    alignas(64) std::byte scratch[kBlock];
    const bool streamed = past(home);
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
    around_own(k, [&](const Scattered::Piece& to, std::size_t first) {
      kernels::copy_taking(to.output, input(k) + first * item_, to.count * item_, past(to));
    });
  }

  static constexpr std::size_t kBlock = 8 << 10;
  const Cuts cuts_;
  const Fragment whole_{call_.input, call_.output, call_.count};
  const Scattered array_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

// A segment holds a cut of every other rank's block; each rank reduces what is for it into its array.
class Reducescatter final : public StagedPass {
 public:
  Reducescatter(Epochs& epochs, const Call& call, Cuts cuts)
      : StagedPass(epochs, call, false, cuts.segment() * size_of(call.dtype)), given_(call, me()),
        cuts_(std::move(cuts)) {}

 private:
  std::size_t segments() override { return cuts_.segments(); }

  void copy_in(std::size_t k) override {
    for (std::size_t rank = 0; rank < cuts_.blocks(); ++rank) {
      const Part cut = cuts_.cut(rank, k);
      if (rank == own_) continue;
      to_peers(input(k) + cuts_.slot(rank) * item_, given_.from(cut.first * item_), cut.count * item_);
    }
  }

  void work(std::size_t k) override {
    const Part cut = cuts_.cut(own_, k);
    if (cut.count == 0) return;
    sources_.clear();
    for (int rank = 0; rank < ranks(); ++rank) {
      sources_.push_back(rank == me() ? given_.from(cut.first * item_) : input_of(rank, k) + cuts_.slot(own_) * item_);
    }
    void* const target = at(call_.output, (cut.first - cuts_.start(own_)) * item_);
    kernels::reduce_many(call_.dtype, call_.op, {&target, 1}, sources_, cut.count, call_.pre, call_.post);
  }

  const KeptInput given_;
  const Cuts cuts_;
  const std::size_t own_ = static_cast<std::size_t>(me());  // block
  std::vector<const void*> sources_;
};

}  // namespace

std::unique_ptr<StagedPass> make_staged_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  const std::size_t item = size_of(call.dtype);
  switch (call.collective) {
    case Collective::allreduce:
    case Collective::reduce:
      return std::make_unique<Allreduce>(epochs, call, Cuts(call.count, cut_for(segment_bytes, item)));
    case Collective::reducescatter:
      return std::make_unique<Reducescatter>(epochs, call,
                                             Cuts(call.counts, cut_for(segment_bytes, item, call.counts.size())));
    default:
      return make_moving_pass(epochs, call, segment_bytes);
  }
}

}  // namespace ringcomm
