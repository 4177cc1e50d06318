#include "memory/node_stage.hpp"

#include <algorithm>
#include <array>

#include "memory/payload.hpp"
#include "memory/staged_pass.hpp"
#include "schedule/schedule.hpp"

namespace ringcomm {
namespace {

bool rides_in_mailboxes(const Call& call, int ranks) {
  const std::size_t most = std::min(kPayload, kPayloadsTogether / static_cast<std::size_t>(ranks));
  return rides(call.collective, call.dtype, call.count, call.counts, ranks, most);
}

class HostCall final : public NodeStage {
 public:
  HostCall(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : epochs_(epochs), call_(call), segment_bytes_(segment_bytes),
        small_(rides_in_mailboxes(call, epochs.node().size())) {}

  // A shared array stays where it is, in the hope that everybody's is shared.
  void open() override {
    Opening& mine = epochs_.mine().opening[epochs_.place()];
    mine.offset = mine.staging = kPrivate;
    if (small_) {
      put_payload(call_, epochs_.node().rank(), epochs_.mine().payload[epochs_.place()]);
      return;
    }
    if (call_.collective == Collective::allreduce && call_.input == call_.output && call_.fragments.empty()) {
      mine.offset = epochs_.node().offset_of(call_.output, call_.count * size_of(call_.dtype));
    }
    if (mine.offset != kPrivate) return;
    staged_ = make_staged_pass(epochs_, call_, segment_bytes_);
    staged_->open();
  }

  void begin(std::uint32_t epoch) override {
    if (small_) return take();
    std::vector<std::uint64_t> offsets;
    std::size_t shared = 0;
    for (int rank = 0; rank < epochs_.node().size(); ++rank) {
      offsets.push_back(epochs_.mailbox(rank).opening[epochs_.place()].offset);
      if (offsets.back() != kPrivate) ++shared;
    }
    if (shared == offsets.size()) {
      pass_ = make_shared_pass(epochs_, call_, std::move(offsets));
      return;
    }
    if (!staged_) staged_ = make_staged_pass(epochs_, call_, segment_bytes_);
    shared > 0 ? staged_->begin_late() : staged_->begin(epoch);
    pass_ = std::move(staged_);
  }

  bool is_small() const override { return small_; }
  Progress advance() override { return pass_ ? pass_->advance() : Progress::done; }
  void nap(std::chrono::nanoseconds longest) override {
    if (pass_) pass_->nap(longest);
  }

 private:
  void take() {
    std::array<const std::byte*, kMostPayloads> payloads;
    const auto ranks = static_cast<std::size_t>(epochs_.node().size());
    for (std::size_t rank = 0; rank < ranks; ++rank)
      payloads[rank] = epochs_.mailbox(static_cast<int>(rank)).payload[epochs_.place()];
    take_payloads(call_, epochs_.node().rank(), std::span(payloads.data(), ranks));
  }

  Epochs& epochs_;
  const Call& call_;
  const std::size_t segment_bytes_;
  const bool small_;
  std::unique_ptr<StagedPass> staged_;
  std::unique_ptr<Task> pass_;
};

}  // namespace

std::unique_ptr<NodeStage> make_node_stage(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  return std::make_unique<HostCall>(epochs, call, segment_bytes);
}

}  // namespace ringcomm
