// Counts the calls of a channel and their traffic, in entries of an Account.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/account.hpp"
#include "base/types.hpp"
#include "collectives/choose.hpp"

namespace ringcomm {

// Used by one thread at a time, like the channel.
class CallAccount {
 public:
  explicit CallAccount(std::shared_ptr<Account> account)
      : account_(account ? std::move(account) : std::make_shared<Account>()) {}
  bool timed() const { return account_->timed(); }
  Account& account() { return *account_; }

  Traffic sent, received;  // traffic of the call in progress, not yet booked to an entry
  EncodingCount encoding;
  // Books all traffic since the previous booking, and `memory` bytes of shared memory, to `calls`
  // calls that ran with `choice`. `choice` must outlive this object.
  void book(Collective collective, const Choice& choice, std::uint64_t calls, std::uint64_t memory) {
    if (last_ == known_.size() || !known_[last_].is(collective, choice)) find(collective, choice);
    add_to(*known_[last_].entry, calls, memory);
  }
  void book_comparison() {  // books messages that only compared calls
    if (sent.messages.value() > 0) add_to(*comparisons_, 1, 0);
  }
  void book_failure(std::uint64_t memory) noexcept { add_to(*failures_, 1, memory); }
  // Returns the entry of the call booked last; null unless timing is enabled.
  std::shared_ptr<Entry> timed_entry() const {
    return timed() && last_ < known_.size() ? known_[last_].entry : nullptr;
  }

 private:
  struct Known {
    Collective collective;
    const Choice* choice;
    std::shared_ptr<Entry> entry;
    bool is(Collective c, const Choice& other) const { return collective == c && choice == &other; }
  };

  void find(Collective collective, const Choice& choice) {
    for (last_ = 0; last_ < known_.size() && !known_[last_].is(collective, choice);) ++last_;
    if (last_ == known_.size())
      known_.push_back({collective, &choice, account_->entry(name_of(collective), choice.shown())});
  }
  void add_to(Entry& entry, std::uint64_t calls, std::uint64_t memory) {
    entry.calls += calls;
    entry.memory += memory;
    entry.sent.take(sent);
    entry.received.take(received);
    entry.encoding.take(encoding);
  }

  const std::shared_ptr<Account> account_;
  const std::shared_ptr<Entry> comparisons_ = account_->entry("comparison", "digests"),
                               failures_ = account_->entry("failed", "");
  std::vector<Known> known_;
  std::size_t last_ = 0;
};

}  // namespace ringcomm
