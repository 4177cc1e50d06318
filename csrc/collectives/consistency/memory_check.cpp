// Implements the check in shared memory. Every rank publishes its descriptor and a digest in its
// mailbox. If digests are equal, peers read no descriptor, except the balance of an all-to-all with
// blocks of different sizes. The same arrival publishes the call header of the pass.

#include <algorithm>
#include <cstring>
#include <optional>

#include "collectives/consistency/consistency_check.hpp"
#include "collectives/consistency/describe.hpp"
#include "host_collectives/memory_pass.hpp"

namespace ringcomm {
namespace {

class MemoryConsistencyCheck final : public ConsistencyCheck {
 public:
  explicit MemoryConsistencyCheck(CallContext& context)
      : epochs_(*context.epochs), me_(context.me), segment_bytes_(context.config.node_segment_bytes) {}

  void begin(Call& call, bool inline_data) override {
    call_ = &call;
    counts_.clear();
    if (call.speculation && !(inline_data && can_speculate(call, epochs_.node().size()))) call.speculation = nullptr;
    const std::size_t parity = epochs_.open_call();
    // Computes the digest first: the first store to a line that peers read takes long, and later
    // loads may wait for it. An equal descriptor is in the mailbox already.
    const std::optional<Descriptor> descriptor = unpublished(call, parity);
    const std::uint64_t digest = descriptor ? digest_of(*descriptor) : kept_digest_[parity];
    epochs_.header().digest = digest;
    if (inline_data) {
      pass_ = make_memory_pass(epochs_, call, segment_bytes_);
      pass_->open();
    }
    if (descriptor) {
      epochs_.mine().descriptor[parity] = *descriptor;
      kept_[parity] = descriptor;
      kept_digest_[parity] = digest;
    }
    if (!call.agreed) kept_key_[parity] = call.descriptor_key;
    epoch_ = epochs_.publish();
  }

  bool brief() const override { return pass_ && pass_->brief(); }

  Progress advance() override {
    if (!epochs_.reached(epoch_)) return Progress::blocked;
    if (!counts_.empty()) {
      collect_counts();
    } else if (call_->agreed || compare()) {
      return Progress::done;
    } else {
      counts_ = counts_of(*call_);
      counts_of_all_.resize(counts_.size() * all_.size());
      published_ = 0;
    }
    publish_counts();
    return Progress::moved;
  }

  std::unique_ptr<Task> collect() override {
    if (pass_) pass_->begin(epoch_);
    return std::move(pass_);
  }

  void abandon() noexcept override { pass_.reset(); }

  void nap(std::chrono::nanoseconds longest) override { epochs_.sleep(epoch_, patient(longest).count()); }

 private:
  // Returns the descriptor of a call that ranks compare, unless it is in the mailbox already.
  std::optional<Descriptor> unpublished(const Call& call, std::size_t parity) const {
    if (call.agreed || (call.descriptor_key != 0 && call.descriptor_key == kept_key_[parity])) return std::nullopt;
    const Descriptor mine = describe(call, me_);
    if (kept_[parity] && std::memcmp(&*kept_[parity], &mine, sizeof mine) == 0) return std::nullopt;
    return mine;
  }

  bool compare() {  // false: the counts of an all-to-all disagree
    const std::size_t parity = epochs_.parity();
    const int ranks = epochs_.node().size();
    bool equal = true;
    for (int rank = 0; rank < ranks; ++rank) equal = equal && epochs_.header_of(rank).digest == epochs_.header().digest;
    if (equal && balanced(parity)) {
      conclude(*call_);
      return true;
    }
    all_.clear();
    for (int rank = 0; rank < ranks; ++rank) all_.push_back(epochs_.mailbox(rank).descriptor[parity]);
    return conclude(*call_, all_);
  }

  bool balanced(std::size_t parity) {
    if (!is_uneven(*kept_[parity])) return true;
    std::uint64_t balance = 0;
    for (int rank = 0; rank < epochs_.node().size(); ++rank)
      balance += epochs_.mailbox(rank).descriptor[parity].balance;
    return balance == 0;
  }

  // Publishes the next part of counts that disagree, one part per arrival. It uses the payloads,
  // which this call no longer needs. A part is overwritten two arrivals later, when every rank has
  // read it.
  void publish_counts() {
    std::byte* const payload = epochs_.mine().payload[epochs_.open_call()];
    std::memcpy(payload, counts_.data() + published_, part() * sizeof(std::uint64_t));
    epoch_ = epochs_.publish();
  }

  void collect_counts() {
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      const std::byte* const payload = epochs_.mailbox(static_cast<int>(rank)).payload[epochs_.parity()];
      std::memcpy(counts_of_all_.data() + rank * counts_.size() + published_, payload, part() * sizeof(std::uint64_t));
    }
    published_ += part();
    if (published_ == counts_.size()) throw counts_mismatch(*call_, all_, counts_of_all_);
  }

  std::size_t part() const { return std::min(counts_.size() - published_, kPayload / sizeof(std::uint64_t)); }

  Epochs& epochs_;
  const int me_;
  const std::size_t segment_bytes_;
  std::optional<Descriptor> kept_[2];  // descriptors in this rank's mailbox, by parity
  std::uint64_t kept_digest_[2] = {};  // digests of these descriptors
  std::uint64_t kept_key_[2] = {};     // Call::descriptor_key of calls with these descriptors
  Call* call_ = nullptr;
  std::unique_ptr<MemoryPass> pass_;
  std::uint32_t epoch_ = 0;
  std::vector<Descriptor> all_;  // by rank; read if digests or counts differ
  // Counts of an all-to-all that disagree: this rank's, and those of all ranks. Otherwise empty.
  std::vector<std::uint64_t> counts_, counts_of_all_;
  std::size_t published_ = 0;  // counts that every rank has
};

}  // namespace

std::unique_ptr<ConsistencyCheck> make_memory_consistency_check(CallContext& context) {
  return std::make_unique<MemoryConsistencyCheck>(context);
}

}  // namespace ringcomm
