// Where a channel's calls are counted.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/account.hpp"
#include "base/types.hpp"
#include "collectives/choose.hpp"

namespace ringcomm {

// Used by one thread at a time, as the channel is.
class CallAccount {
 public:
  explicit CallAccount(std::shared_ptr<Account> account)
      : account_(account ? std::move(account) : std::make_shared<Account>()) {}
  bool timed() const { return account_->timed(); }
  Account& account() { return *account_; }

  Traffic sent, received;  // of the call under way: what no entry has yet
  EncodingCount encoding;
  // That has moved, and `memory` bytes of the host's memory, for so many calls that ran as `choice`, which lives on.
  void book(Collective collective, const Choice& choice, std::uint64_t calls, std::uint64_t memory) {
    if (last_ == known_.size() || !known_[last_].is(collective, choice)) find(collective, choice);
    add_to(*known_[last_].entry, calls, memory);
  }
  void book_comparison() {  // of calls, by messages that carried nothing else
    if (sent.messages.value() > 0) add_to(*comparisons_, 1, 0);
  }
  void book_failure(std::uint64_t memory) noexcept { add_to(*failures_, 1, memory); }
  // Of the call booked last; null where nobody looks at a clock.
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
