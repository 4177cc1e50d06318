// Implements the collectives on two levels that compute: allreduce, reduce and reducescatter.
#include <memory>
#include <optional>

#include "hierarchical/two_level_pass.hpp"
#include "host_collectives/kept_input.hpp"
#include "host_collectives/scattered.hpp"

namespace ringcomm {
namespace {

// A rank in a lane reduces the lane's slices of a segment into its own staging memory, from its own
// array and from the peers' staging memory. So it does not copy these slices of its array in. Then
// each rank reads its result: everything in an all-reduce and at the root of a reduce, its block in
// a reduce-scatter. Sources are in rank order, so every slice has the same operand order. Between
// hosts the schedule fixes the order.
class TwoLevelReduction final : public TwoLevelPass {
 public:
  TwoLevelReduction(Epochs& epochs, const Call& call, LaneRun lane, HostBlocks blocks)
      : TwoLevelPass(epochs, call, std::move(lane), std::move(blocks), true),
        whole_{call.input, call.output, call.count} {
    if (has_blocks(call.collective)) take_own_block();
    array_.emplace(whole_, call.fragments, item_);
  }

 private:
  void take_own_block() {
    const int rank = hosts().here()[static_cast<std::size_t>(me())];
    post_ = call_.post;
    own_bytes_ = call_.counts[static_cast<std::size_t>(rank)] * item_;
    if (!overwrites_input(call_, rank)) return;
    separate_output_ = std::make_unique_for_overwrite<std::byte[]>(own_bytes_);
    whole_.output = separate_output_.get();
  }

  void copy_in(std::size_t k) override {
    for (std::size_t block = 0; block < blocks(); ++block) {
      const std::size_t length = blocks_.length(block, k);
      const Part own = in_lane() ? blocks_.slice(block, k, me()) : Part{length, 0};  // read in the array
      for (const Part part : {Part{0, own.first}, Part{own.end(), length - own.end()}}) {
        blocks_.visit(block, k, part, [&](int, std::size_t first, std::size_t offset, std::size_t count) {
          array_->each({first, count}, [&](const Scattered::Piece& from, std::size_t before) {
            kernels::copy(input(k) + (offset + before) * item_, from.input, from.count * item_);
            tally(from.count * item_);
          });
        });
      }
    }
  }

  void fill_lane(std::size_t k) override {
    for (std::size_t block = 0; block < blocks(); ++block) {
      blocks_.visit(block, k, blocks_.slice(block, k, me()),
                    [&](int, std::size_t first, std::size_t offset, std::size_t count) {
                      array_->each({first, count}, [&](const Scattered::Piece& own, std::size_t before) {
                        void* const target = input(k) + (offset + before) * item_;
                        sources_.clear();
                        for (int rank = 0; rank < ranks(); ++rank)
                          sources_.push_back(rank == me() ? own.input : input_of(rank, k) + (offset + before) * item_);
                        kernels::reduce_many(call_.dtype, call_.op, {&target, 1}, sources_, own.count, call_.pre, {});
                        tally((sources_.size() - 1) * own.count * item_);
                      });
                    });
    }
  }

  void finish(std::size_t k) override {
    for (std::size_t block = 0; block < blocks(); ++block) {
      for (int lane = 0; is_home(block) && lane < lanes(); ++lane) {
        const std::byte* const segment = of_lane(lane, k);
        blocks_.visit(block, k, blocks_.slice(block, k, lane),
                      [&](int rank, std::size_t, std::size_t offset, std::size_t count) {
                        if (owner(rank) != me()) return;
                        array_->each({taken_, count}, [&](const Scattered::Piece& to, std::size_t before) {
                          kernels::scale(call_.dtype, to.output, segment + (offset + before) * item_, to.count, post_);
                        });
                        tally(count * item_);
                        taken_ += count;  // slices and segments are in the array's order
                      });
      }
    }
    if (separate_output_ && k + 1 == blocks_.cuts().segments())
      kernels::copy(call_.output, separate_output_.get(), own_bytes_);
  }

  Fragment whole_;
  std::optional<Scattered> array_;
  std::size_t taken_ = 0;      // elements
  kernels::Scale post_;        // scaling that lanes have not applied
  std::size_t own_bytes_ = 0;  // size of this rank's block
  std::unique_ptr<std::byte[]>
      separate_output_;  // buffer for a result that would overwrite input that later segments need
  std::vector<const void*> sources_;
};

}  // namespace

std::unique_ptr<TwoLevelPass> make_two_level_reduction(Epochs& epochs, const Call& call, LaneRun lane) {
  HostBlocks blocks(lane.hosts, call, lane.segment_bytes);
  return std::make_unique<TwoLevelReduction>(epochs, call, std::move(lane), std::move(blocks));
}

}  // namespace ringcomm
