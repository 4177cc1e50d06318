// The staged collectives that compute: allreduce, reduce, reducescatter.
#include <algorithm>
#include <cstring>
#include <memory>

#include "memory/scattered.hpp"
#include "memory/staged_kinds.hpp"

namespace ringcomm {
namespace {

// Each rank reduces its own slice of a segment, from its own array and the peers' inputs, into its own array and the
// peers' inputs; then copies out the others' slices, which have come into its own. With a root, only it does so.
class Allreduce final : public StagedPass {
 public:
  Allreduce(Epochs& epochs, const Call& call, std::size_t per_segment)
      : StagedPass(epochs, call, true, std::min(call.count, per_segment) * size_of(call.dtype)),
        per_segment_(per_segment), array_(whole_, call_.fragments, item_) {}

 private:
  bool wanted() const { return call_.collective == Collective::allreduce || call_.root == me(); }
  std::size_t segments() override { return std::max<std::size_t>(1, pieces(call_.count, per_segment_)); }
  std::size_t start(std::size_t k) const { return k * per_segment_; }  // in elements
  std::size_t length(std::size_t k) const { return std::min(per_segment_, call_.count - start(k)); }
  bool past(const Scattered::Stretch& to) const {
    return past_caches() && !to.in_place();
  }  // an input's place is in the caches
  Part slice(std::size_t k, int rank) const { return slice_of(length(k), item_, ranks(), rank); }

  // The segment less the rank's own slice, which it reads at home: two pieces.
  template <class Copy>
  void around_own(std::size_t k, Copy copy) const {
    const Part own = slice(k, me());
    const std::size_t behind = own.first + own.count;
    copy(0, own.first * item_);
    copy(behind * item_, (length(k) - behind) * item_);
  }

  void copy_in(std::size_t k) override {
    around_own(k, [&](std::size_t first, std::size_t nbytes) {
      array_.each(start(k) * item_ + first, nbytes, [&](const Scattered::Stretch& from, std::size_t before) {
        kernels::copy(input(k) + first + before, from.input, from.nbytes);
      });
    });
  }

  // Block by block through the L1 cache. Sources in rank order, so that every slice has one operand order.
  void work(std::size_t k) override {
    alignas(64) std::byte scratch[kBlock];
    const Part own = slice(k, me());
    std::size_t count = 0;
    for (std::size_t done = 0; done < own.count; done += count) {
      const std::size_t first = (own.first + done) * item_;
      const Scattered::Stretch home = array_.from(start(k) * item_ + first);
      count = std::min({kBlock / item_, own.count - done, home.nbytes / item_});
      std::byte* const output = wanted() ? home.output : scratch;
      const bool streamed = past(home);
      sources_.clear();
      targets_.clear();
      for (int rank = 0; rank < ranks(); ++rank) {
        const bool mine = rank == me();
        std::byte* const peers = mine ? nullptr : input_of(rank, k) + first;
        sources_.push_back(mine ? home.input : peers);
        targets_.push_back(mine ? (streamed ? scratch : output) : peers);
      }
      kernels::reduce_many(call_.dtype, call_.op, targets_, sources_, count, call_.pre, call_.post);
      if (wanted() && streamed) kernels::copy(output, scratch, count * item_, true);
    }
  }

  void finish(std::size_t k) override {
    if (!wanted()) return;
    around_own(k, [&](std::size_t first, std::size_t nbytes) {
      array_.each(start(k) * item_ + first, nbytes, [&](const Scattered::Stretch& to, std::size_t before) {
        kernels::copy_taking(to.output, input(k) + first + before, to.nbytes, past(to));
      });
    });
  }

  static constexpr std::size_t kBlock = 8 << 10;
  const std::size_t per_segment_;  // elements
  const Fragment whole_{call_.input, call_.output, call_.count};
  const Scattered array_;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

// A segment holds a cut of every other rank's block; each rank reduces what is for it into its array.
class Reducescatter final : public StagedPass {
 public:
  Reducescatter(Epochs& epochs, const Call& call, const Cuts& cuts)
      : StagedPass(epochs, call, false, cuts.bytes()), given_(call, me()), cuts_(cuts) {}

 private:
  std::size_t segments() override { return cuts_.number(); }

  void copy_in(std::size_t k) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = cuts_.cut(rank, k);
      if (rank == me()) continue;
      to_peers(input(k) + cuts_.place(rank), given_.from(cut.first * item_), cut.count * item_);
    }
  }

  void work(std::size_t k) override {
    const Part cut = cuts_.cut(me(), k);
    if (cut.count == 0) return;
    sources_.clear();
    for (int rank = 0; rank < ranks(); ++rank)
      sources_.push_back(rank == me() ? given_.from(cut.first * item_) : input_of(rank, k) + cuts_.place(me()));
    void* const target = at(call_.output, (cut.first - cuts_.start(me())) * item_);
    kernels::reduce_many(call_.dtype, call_.op, {&target, 1}, sources_, cut.count, call_.pre, call_.post);
  }

  const KeptInput given_;
  const Cuts cuts_;
  std::vector<const void*> sources_;
};

}  // namespace

std::unique_ptr<StagedPass> make_staged_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  const std::size_t item = size_of(call.dtype);
  switch (call.collective) {
    case Collective::allreduce:
    case Collective::reduce:
      return std::make_unique<Allreduce>(epochs, call, std::max(kLine, segment_bytes / kLine * kLine) / item);
    case Collective::reducescatter:
      return std::make_unique<Reducescatter>(epochs, call,
                                             Cuts(call.counts, item, epochs.node().size(), segment_bytes));
    default:
      return make_moving_pass(epochs, call, segment_bytes);
  }
}

}  // namespace ringcomm
