// Every rank publishes its descriptor in its mailbox, and beside it a digest, which is all that the others read of it
// as long as digests are equal. What a pass over memory publishes of its call is there as well: one arrival tells all.

#include "call/comparison.hpp"
#include "call/describe.hpp"
#include "memory/memory_pass.hpp"

namespace ringcomm {
namespace {

class MemoryComparison final : public Comparison {
 public:
  explicit MemoryComparison(CallContext& context)
      : epochs_(*context.epochs), me_(context.me), segment_bytes_(context.config.node_segment_bytes) {}

  void begin(Call& call, bool piggyback) override {
    call_ = &call;
    if (call.guess && !(piggyback && can_guess(call, epochs_.node().size()))) call.guess = nullptr;
    // What is computed comes before the first store to what peers read, which takes long, and loads may wait for it.
    Descriptor said;
    if (!call.agreed) said = describe(call, me_);
    const std::uint64_t digest = call.agreed ? 0 : digest_of(said);
    const std::size_t parity = epochs_.open_call();
    if (piggyback) {
      pass_ = make_memory_pass(epochs_, call, segment_bytes_);
      pass_->open();
    }
    if (!call.agreed) {
      Mailbox& mine = epochs_.mine();
      mine.descriptor[parity] = said;
      mine.opening[parity].digest = digest;
    }
    epoch_ = epochs_.publish();
  }

  Progress advance() override {
    if (!epochs_.reached(epoch_)) return Progress::blocked;
    if (!call_->agreed) compare();
    return Progress::done;
  }

  std::unique_ptr<Task> collect() override {
    if (pass_) pass_->begin(epoch_);
    return std::move(pass_);
  }

  void abandon() noexcept override { pass_.reset(); }

  void nap(std::chrono::nanoseconds longest) override { epochs_.sleep(epoch_, patient(longest).count()); }

 private:
  void compare() {
    const std::size_t parity = epochs_.parity();
    const std::uint64_t digest = epochs_.mine().opening[parity].digest;
    const int ranks = epochs_.node().size();
    bool equal = true;
    for (int rank = 0; rank < ranks; ++rank) equal = equal && epochs_.mailbox(rank).opening[parity].digest == digest;
    if (equal) return conclude(*call_);
    std::vector<Descriptor> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(epochs_.mailbox(rank).descriptor[parity]);
    conclude(*call_, all);
  }

  Epochs& epochs_;
  const int me_;
  const std::size_t segment_bytes_;
  Call* call_ = nullptr;
  std::unique_ptr<MemoryPass> pass_;
  std::uint32_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Comparison> make_memory_comparison(CallContext& context) {
  return std::make_unique<MemoryComparison>(context);
}

}  // namespace ringcomm
