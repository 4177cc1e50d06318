// Implements CoordinatorSide: passes records to the coordinator, and sends verdicts.
#include "engine/agreement/coordinator_side.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/rank_text.hpp"

namespace ringcomm {

std::string seconds_text(std::int64_t ns) { return std::to_string(ns / 1'000'000'000) + " s"; }

CoordinatorSide::CoordinatorSide(Context& context, int set, const std::vector<int>& ranks)
    : context_(context), set_(static_cast<std::uint32_t>(set)), ranks_(ranks),
      coordinator_(ranks, context.config.fusion_bytes, context.config.cache_capacity) {}

void CoordinatorSide::receive(int index, const ReadyRecord& record) {
  coordinator_.has_read(index, record.read);
  for (const Ready& entry : record.entries) {
    if (trace().enabled()) {
      const std::int64_t now = now_ns();
      const std::string rank = "rank " + std::to_string(ranks_[static_cast<std::size_t>(index)]);
      for (std::uint32_t i = 0; i < entry.count; ++i) {
        context_.traced("ready", entry.id ? coordinator_.name_under(entry.id + i) : entry.name, now, now, 0, rank);
      }
    }
    coordinator_.ready(index, record.read, entry);
  }
}

void CoordinatorSide::receive(int index, const WithdrawRecord& record) {
  const std::vector<int> missing = coordinator_.missing(record.name);
  const std::string state = missing.empty() ? "all ranks have submitted it, but not all operations of its group"
                                            : rank_text(missing) + (missing.size() > 1 ? " have" : " has") +
                                                  " not submitted it; every rank must submit the same operations";
  coordinator_.withdraw(index, record.name, record.why + ": " + state);
}

std::optional<VerdictRecord> CoordinatorSide::decide(std::size_t limit) {
  const std::uint64_t first = coordinator_.issued() + 1;
  VerdictRecord whole{set_, first, coordinator_.decide(limit)};
  if (whole.verdicts.empty()) return std::nullopt;
  const int size = static_cast<int>(ranks_.size());
  const auto seen_by_rank = [&](int index) {
    VerdictRecord record{set_, first, {}};
    for (const Verdict& verdict : whole.verdicts) record.verdicts.push_back(seen_by(verdict, index, size));
    return record;
  };
  const bool personal = std::any_of(whole.verdicts.begin(), whole.verdicts.end(), has_matrix);
  Record record;
  Bytes same;
  if (!personal) record = std::move(whole);
  if (!personal && size > 1) encode(record, same);
  for (int index = 1; index < size; ++index) {
    const int rank = ranks_[static_cast<std::size_t>(index)];
    if (personal) {
      context_.control.send(rank, seen_by_rank(index));
    } else {
      context_.control.send(rank, same);
    }
  }
  return personal ? seen_by_rank(0) : std::get<VerdictRecord>(std::move(record));
}

std::vector<std::string> CoordinatorSide::stalled(std::int64_t before_ns, std::int64_t now_ns) const {
  std::vector<std::string> lines;
  for (const auto& [name, since_ns, here, missing] : coordinator_.waiting(before_ns)) {
    const std::string ranks = missing.empty() ? "all ranks, unlike other operations of its group"
                                              : rank_text(here) + ", not by " + rank_text(missing);
    lines.push_back("'" + name + "' for " + seconds_text(now_ns - since_ns) + ": submitted by " + ranks);
  }
  return lines;
}

}  // namespace ringcomm
