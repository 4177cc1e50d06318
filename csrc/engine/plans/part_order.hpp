// The order in which the parts of a plan's step run: its buckets, and the flags, which are the last
// part. PlanRun runs them. The order is fixed, or by priority: then the ranks agree, before each
// part, on the first ones that are ready on every rank, the flags first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

namespace ringcomm {

class PartOrder {
 public:
  using Ready = std::function<bool(std::size_t)>;  // returns whether a part is ready on this rank

  PartOrder(std::size_t parts, bool by_priority) : by_priority_(by_priority), ended_(parts) { restart(); }
  void restart();  // begins a step
  bool finished() const { return rest_ == 0; }
  // Returns the part that runs next; none: nothing is ready, or agree() is due.
  std::optional<std::size_t> next(const Ready& ready);
  // Returns numbers to replace by their minimum over the ranks before agreed() is called; null:
  // nothing is ready.
  std::vector<std::int32_t>* agree(const Ready& ready);
  void agreed();
  void ended(std::size_t part, std::int64_t lasted_ns);

 private:
  const bool by_priority_;
  std::vector<std::uint8_t> ended_;  // by part
  std::size_t rest_ = 0, next_ = 0;  // parts that have not ended; the next one in a fixed order
  std::deque<std::size_t> chosen_;   // run next
  // For each part 1 if it is ready, then the number of parts that run before the next agreement.
  std::vector<std::int32_t> numbers_;
  std::size_t tried_ = 0;  // parts that were ready here in an agreement that chose none; 0: it chose some
  std::int64_t since_ns_ = 0, agreement_ns_ = 0, part_ns_ = 0;  // times; 0: unknown
};

}  // namespace ringcomm
