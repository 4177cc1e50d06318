// Implements the passes of a host: in mailboxes, in place, or through staging memory; and
// speculations, which run within an exchange of counts.
#include "host_collectives/memory_pass.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "host_collectives/kept_input.hpp"
#include "host_collectives/payload.hpp"
#include "host_collectives/read_pass.hpp"
#include "host_collectives/readable.hpp"
#include "host_collectives/shared_pass.hpp"

namespace ringcomm {

void MemoryPass::open() {
  if (publish()) return;
  staged_ = through_staging();
  staged_->open();
}

void MemoryPass::begin(std::uint32_t epoch) {
  bool any = false;
  if ((pass_ = in_place(epoch, any))) return;
  if (!staged_) staged_ = through_staging();
  any ? staged_->begin_late() : staged_->begin(epoch);
  pass_ = std::move(staged_);
}

namespace {

std::size_t longest_payload(int ranks) {
  return std::min(kPayload, kPayloadsTogether / static_cast<std::size_t>(ranks));
}

bool moves_blocks(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::allgather ||
         collective == Collective::alltoall;
}

class HostPass : public MemoryPass {
 public:
  // `taken`: bytes of each payload that hold other data.
  HostPass(Epochs& epochs, const Call& call, std::size_t segment_bytes, std::size_t taken = 0)
      : MemoryPass(epochs, call), segment_bytes_(segment_bytes), taken_(taken),
        small_(taken <= longest_payload(ranks()) && fits_inline(call, ranks(), longest_payload(ranks()) - taken)),
        in_header_(taken == 0 && fits_header(call, ranks())) {
    // Data that is only moved is read in place, if that is possible. Reductions work in place on
    // arrays in arenas.
    if (!small_ && moves_blocks(call.collective) && Readable::fits(call, ranks(), taken))
      readable_.emplace(epochs, call, taken);
  }

  void open() override {
    if (!small_) {
      MemoryPass::open();
      if (readable_) readable_->rest();
      return;
    }
    const int me = epochs_.node().rank();
    std::byte* const to = in_header_ ? epochs_.header().data : epochs_.mine().payload[epochs_.parity()] + taken_;
    epochs_.copied += publish_payload(call_, me, to);
  }
  bool brief() const override { return small_ || (pass_ ? pass_->brief() : readable_ && readable_->brief()); }
  void begin(std::uint32_t epoch) override { small_ ? collect() : MemoryPass::begin(epoch); }
  Progress advance() override {
    const Progress progress = MemoryPass::advance();
    if (readable_ && progress == Progress::done) readable_->done();
    return progress;
  }

 private:
  int ranks() const { return epochs_.node().size(); }
  // This rank reads its input instead of its mailbox if possible, for the reason at header_of().
  const std::byte* payload(int rank) const {
    if (rank == epochs_.node().rank() && !overwrites_input(call_, rank)) return at(call_.input, 0);
    return in_header_ ? epochs_.header_of(rank).data : epochs_.mailbox(rank).payload[epochs_.parity()] + taken_;
  }
  std::unique_ptr<StagedPass> through_staging() override { return make_staged_pass(epochs_, call_, segment_bytes_); }
  bool publish() override { return readable_ ? readable_->publish() : MemoryPass::publish(); }
  std::unique_ptr<Task> in_place(std::uint32_t epoch, bool& any) override {
    if (readable_) {
      auto blocks = readable_->collect(any);
      if (!blocks) return nullptr;
      if (!readable_->in_payloads()) return std::make_unique<ReadPass>(epochs_, epoch, *std::move(blocks));
      for (const ReadableBlock& block : *blocks) {
        kernels::copy(block.target, block.here, block.nbytes);
        if (block.giver != epochs_.node().rank()) epochs_.copied += block.nbytes;
      }
      return std::make_unique<Finished>();
    }
    auto arrays = HostArrays::collect(epochs_, call_, any);
    return arrays ? std::make_unique<SharedPass>(epochs_, call_, *std::move(arrays)) : nullptr;
  }

  void collect() {
    std::array<const std::byte*, kMostPayloads> payloads;
    for (int rank = 0; rank < ranks(); ++rank) payloads[static_cast<std::size_t>(rank)] = payload(rank);
    const std::span all(payloads.data(), static_cast<std::size_t>(ranks()));
    const int me = epochs_.node().rank();
    epochs_.copied += collect_payloads(call_, me, all);
    epochs_.expect_again(taken_ + payload_bytes(call_, me));
  }

  const std::size_t segment_bytes_, taken_;
  const bool small_, in_header_;  // equal on all ranks
  std::optional<Readable> readable_;
};

// An exchange of counts, and the call that runs within it if all ranks expect the same counts. The
// data of that call is stored behind the payload of the exchange.
class SpeculativePass final : public HostPass {
 public:
  SpeculativePass(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : HostPass(epochs, call, segment_bytes), follows_(epochs, *call.speculation->call, segment_bytes,
                                                        round_up(payload_bytes(call, epochs.node().rank()), kLine)) {}

  void open() override {
    HostPass::open();
    follows_.open();
  }
  bool brief() const override { return HostPass::brief() && follows_.brief(); }
  void begin(std::uint32_t epoch) override {
    call_.speculation->right ? follows_.begin(epoch) : HostPass::begin(epoch);
  }
  Progress advance() override { return call_.speculation->right ? follows_.advance() : Progress::done; }
  void abandon() noexcept override { follows_.abandon(); }
  void nap(std::chrono::nanoseconds longest) override { follows_.nap(longest); }

 private:
  HostPass follows_;
};

}  // namespace

bool can_speculate(const Call& call, int ranks) { return fits_inline(call, ranks, longest_payload(ranks)); }

std::unique_ptr<MemoryPass> make_memory_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  if (call.speculation) return std::make_unique<SpeculativePass>(epochs, call, segment_bytes);
  return std::make_unique<HostPass>(epochs, call, segment_bytes);
}

}  // namespace ringcomm
