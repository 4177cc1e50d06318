#include "memory/node_stage.hpp"

#include <algorithm>
#include <array>

#include "memory/in_place_or_staged.hpp"
#include "memory/payload.hpp"

namespace ringcomm {
namespace {

bool rides_in_mailboxes(const Call& call, int ranks) {
  const std::size_t most = std::min(kPayload, kPayloadsTogether / static_cast<std::size_t>(ranks));
  return rides(call.collective, call.dtype, call.count, call.counts, ranks, most);
}

class HostCall final : public NodeStage, private InPlaceOrStaged {
 public:
  HostCall(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : InPlaceOrStaged(epochs, call), segment_bytes_(segment_bytes),
        small_(rides_in_mailboxes(call, epochs.node().size())) {}

  void open() override {
    if (!small_) return InPlaceOrStaged::open();
    Opening& mine = epochs_.mine().opening[epochs_.place()];
    mine.offset = mine.staging = kPrivate;
    put_payload(call_, epochs_.node().rank(), epochs_.mine().payload[epochs_.place()]);
  }
  void begin(std::uint32_t epoch) override { small_ ? take() : InPlaceOrStaged::begin(epoch); }
  bool is_small() const override { return small_; }
  Progress advance() override { return pass_ ? pass_->advance() : Progress::done; }
  void nap(std::chrono::nanoseconds longest) override {
    if (pass_) pass_->nap(longest);
  }

 private:
  std::unique_ptr<StagedPass> through_staging() override { return make_staged_pass(epochs_, call_, segment_bytes_); }
  std::unique_ptr<Task> in_place(std::vector<std::uint64_t> offsets) override {
    return make_shared_pass(epochs_, call_, std::move(offsets));
  }

  void take() {
    std::array<const std::byte*, kMostPayloads> payloads;
    const auto ranks = static_cast<std::size_t>(epochs_.node().size());
    for (std::size_t rank = 0; rank < ranks; ++rank)
      payloads[rank] = epochs_.mailbox(static_cast<int>(rank)).payload[epochs_.place()];
    take_payloads(call_, epochs_.node().rank(), std::span(payloads.data(), ranks));
  }

  const std::size_t segment_bytes_;
  const bool small_;
};

}  // namespace

std::unique_ptr<NodeStage> make_node_stage(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  return std::make_unique<HostCall>(epochs, call, segment_bytes);
}

}  // namespace ringcomm
