#include "memory/memory_pass.hpp"

#include <algorithm>
#include <array>

#include "memory/payload.hpp"
#include "memory/shared_pass.hpp"

namespace ringcomm {

// A shared array stays where it is, in the hope that everybody's is shared.
void MemoryPass::open() {
  Opening& mine = epochs_.mine().opening[epochs_.parity()];
  mine.offset = mine.staging = kPrivate;
  if (call_.collective == Collective::allreduce && HostArrays::publish(epochs_, call_)) return;
  staged_ = through_staging();
  staged_->open();
}

void MemoryPass::begin(std::uint32_t epoch) {
  bool any = false;
  if (auto arrays = HostArrays::collect(epochs_, call_, any)) {
    pass_ = in_place(*std::move(arrays));
    return;
  }
  if (!staged_) staged_ = through_staging();
  any ? staged_->begin_late() : staged_->begin(epoch);
  pass_ = std::move(staged_);
}

namespace {

class HostPass final : public MemoryPass {
 public:
  HostPass(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : MemoryPass(epochs, call), segment_bytes_(segment_bytes), small_(fits_mailboxes(call, epochs.node().size())) {}

  void open() override {
    if (!small_) return MemoryPass::open();
    Mailbox& mine = epochs_.mine();
    Opening& opening = mine.opening[epochs_.parity()];
    opening.offset = opening.staging = kPrivate;
    publish_payload(call_, epochs_.node().rank(), mine.payload[epochs_.parity()]);
  }
  void begin(std::uint32_t epoch) override { small_ ? collect() : MemoryPass::begin(epoch); }

 private:
  static bool fits_mailboxes(const Call& call, int ranks) {
    const std::size_t most = std::min(kPayload, kPayloadsTogether / static_cast<std::size_t>(ranks));
    return can_piggyback(call.collective, call.dtype, call.count, call.counts, ranks, most);
  }
  std::unique_ptr<StagedPass> through_staging() override { return make_staged_pass(epochs_, call_, segment_bytes_); }
  std::unique_ptr<Task> in_place(HostArrays arrays) override {
    return std::make_unique<SharedPass>(epochs_, call_, std::move(arrays));
  }

  void collect() {
    std::array<const std::byte*, kMostPayloads> payloads;
    const auto ranks = static_cast<std::size_t>(epochs_.node().size());
    for (std::size_t rank = 0; rank < ranks; ++rank)
      payloads[rank] = epochs_.mailbox(static_cast<int>(rank)).payload[epochs_.parity()];
    collect_payloads(call_, epochs_.node().rank(), std::span(payloads.data(), ranks));
  }

  const std::size_t segment_bytes_;
  const bool small_;
};

}  // namespace

std::unique_ptr<MemoryPass> make_memory_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  return std::make_unique<HostPass>(epochs, call, segment_bytes);
}

}  // namespace ringcomm
