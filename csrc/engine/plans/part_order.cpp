// Implements PartOrder: agreements on the parts that are ready on all ranks.
#include "engine/plans/part_order.hpp"

#include <algorithm>

#include "base/clock.hpp"

namespace ringcomm {

void PartOrder::restart() {
  std::fill(ended_.begin(), ended_.end(), 0);
  rest_ = ended_.size();
  next_ = tried_ = 0;
  chosen_.clear();
}

std::optional<std::size_t> PartOrder::next(const Ready& ready) {
  if (finished()) return std::nullopt;
  if (!by_priority_) return ready(next_) ? std::optional(next_) : std::nullopt;
  if (chosen_.empty()) return std::nullopt;
  const std::size_t part = chosen_.front();
  chosen_.pop_front();
  return part;
}

// Repeats an agreement that chose no part when more parts are ready here, or when all are: then
// other ranks have missing ones. In the end all parts are ready on each rank, so all ranks take
// part in the same number of agreements.
std::vector<std::int32_t>* PartOrder::agree(const Ready& ready) {
  constexpr std::int64_t kTimes = 10;  // an agreement takes at most this fraction of the time
  constexpr std::int64_t kMost = 16;   // parts that run before the next agreement
  if (!by_priority_ || finished() || !chosen_.empty()) return nullptr;
  numbers_.assign(ended_.size() + 1, 0);
  bool any = false;
  std::size_t count = 0;
  for (std::size_t part = 0; part < ended_.size(); ++part) {
    if (!ready(part)) continue;
    numbers_[part] = 1;
    any |= !ended_[part];
    ++count;
  }
  if (!any || (count <= tried_ && count < ended_.size())) return nullptr;
  tried_ = count;
  const std::int64_t wanted = part_ns_ > 0 ? agreement_ns_ * kTimes / part_ns_ : 1;
  numbers_.back() = static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, 1, kMost));
  since_ns_ = now_ns();
  return &numbers_;
}

void PartOrder::agreed() {
  const std::int64_t lasted = now_ns() - since_ns_;
  agreement_ns_ = agreement_ns_ == 0 ? lasted : std::min(agreement_ns_, lasted);
  const auto room = static_cast<std::size_t>(numbers_.back());
  const auto choose = [&](std::size_t part) {
    if (chosen_.size() < room && !ended_[part] && numbers_[part] != 0) chosen_.push_back(part);
  };
  const std::size_t flags = ended_.size() - 1;
  choose(flags);
  for (std::size_t part = 0; part < flags; ++part) choose(part);
  if (!chosen_.empty()) tried_ = 0;
}

void PartOrder::ended(std::size_t part, std::int64_t lasted_ns) {
  ended_[part] = 1;
  --rest_;
  ++next_;
  const bool flags = part + 1 == ended_.size();  // too short to compare an agreement with
  if (by_priority_ && !flags) part_ns_ = std::max<std::int64_t>(1, lasted_ns);
}

}  // namespace ringcomm
