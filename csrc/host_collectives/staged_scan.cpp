// Implements the staged collectives with a different result on each rank: scan, exscan.
#include <algorithm>
#include <memory>
#include <utility>

#include "host_collectives/staged_pass.hpp"

namespace ringcomm {
namespace {

// A pass in which each rank scans its slice of a segment through all ranks' inputs, in rank order,
// and stores each rank's result in that rank's input. Then each rank copies its own input out.
class Scan final : public StagedPass {
 public:
  Scan(Epochs& epochs, const Call& call, const Cuts& cuts)
      : StagedPass(epochs, call, true, cuts.longest_cut() * size_of(call.dtype)), cuts_(cuts) {}

 private:
  bool inclusive() const { return call_.collective == Collective::scan; }
  std::size_t segments() override { return cuts_.segments(); }

  void copy_in(std::size_t k) override {
    const Part segment = cuts_.cut(k);
    to_peers(input(k), at(call_.input, segment.first * item_), segment.count * item_);
  }

  void work(std::size_t k) override {
    const Part own = slice_of(cuts_.cut(k).count, item_, ranks(), me());
    tally(2 * static_cast<std::size_t>(ranks() - 1) * own.count * item_);
    for (std::size_t done = 0; done < own.count; done += kBlock / item_) {
      const std::size_t count = std::min(kBlock / item_, own.count - done);
      inclusive() ? scan(k, (own.first + done) * item_, count) : exscan(k, (own.first + done) * item_, count);
    }
  }

  void scan(std::size_t k, std::size_t begin, std::size_t count) {
    for (int rank = 1; rank < ranks(); ++rank) {
      std::byte* const its = input_of(rank, k) + begin;
      kernels::reduce(call_.dtype, call_.op, its, input_of(rank - 1, k) + begin, its, count);
    }
  }

  void exscan(std::size_t k, std::size_t begin, std::size_t count) {
    alignas(64) std::byte scratch[2][kBlock];
    std::byte *before = scratch[0], *up_to = scratch[1];
    kernels::copy(before, input_of(0, k) + begin, count * item_);
    for (int rank = 1; rank < ranks(); ++rank) {
      std::byte* const its = input_of(rank, k) + begin;
      if (rank + 1 < ranks()) kernels::reduce(call_.dtype, call_.op, up_to, before, its, count);
      kernels::copy(its, before, count * item_);
      std::swap(before, up_to);
    }
  }

  void finish(std::size_t k) override {
    if (!inclusive() && me() == 0) return;
    const Part segment = cuts_.cut(k);
    kernels::copy_taking(at(call_.output, segment.first * item_), input(k), segment.count * item_, past_caches());
    tally(segment.count * item_);
  }

  static constexpr std::size_t kBlock = 8 << 10;
  const Cuts cuts_;
};

}  // namespace

std::unique_ptr<StagedPass> make_staged_scan(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  return std::make_unique<Scan>(epochs, call, Cuts(call.count, cut_for(segment_bytes, size_of(call.dtype))));
}

}  // namespace ringcomm
