// Implements the traffic account of a communicator: lookup of entries, and their numbers as a list.
#include "base/account.hpp"

namespace ringcomm {

std::vector<std::int64_t> Entry::numbers() const {
  std::vector<std::int64_t> all;
  for (const Count* count : {&calls, &sent.messages, &sent.bytes, &received.messages, &received.bytes, &memory,
                             &encoding.saved, &encoding.ns})
    all.push_back(static_cast<std::int64_t>(count->value()));
  for (const auto* ns : {&waited_ns_, &lasted_ns_}) all.push_back(ns->load(std::memory_order_relaxed));
  return all;
}

std::shared_ptr<Entry> Account::entry(std::string_view operation, std::string_view algorithm) {
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) {
    if (entry->operation == operation && entry->algorithm == algorithm) return entry;
  }
  return entries_.emplace_back(std::make_shared<Entry>(operation, algorithm));
}

std::vector<std::shared_ptr<Entry>> Account::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace ringcomm
