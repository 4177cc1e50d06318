#include "base/account.hpp"

namespace ringcomm {

std::vector<std::uint64_t> Entry::numbers() const {
  const auto ns = [](const std::atomic<std::int64_t>& time) {
    return static_cast<std::uint64_t>(time.load(std::memory_order_relaxed));
  };
  return {calls.value(),          sent.messages.value(), sent.bytes.value(),     received.messages.value(),
          received.bytes.value(), memory.value(),        encoding.saved.value(), encoding.ns.value(),
          ns(waited_ns_),         ns(lasted_ns_)};
}

std::shared_ptr<Entry> Account::entry(std::string_view operation, std::string_view algorithm) {
  const std::lock_guard lock(mutex_);
  for (const auto& one : entries_) {
    if (one->operation == operation && one->algorithm == algorithm) return one;
  }
  return entries_.emplace_back(std::make_shared<Entry>(operation, algorithm));
}

std::vector<std::shared_ptr<Entry>> Account::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

}  // namespace ringcomm
