// Implements Coordinator: collects ready operations, and decides verdicts.
#include "engine/agreement/coordinator.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/types.hpp"
#include "engine/agreement/complaints.hpp"

namespace ringcomm {

namespace {

// Fills in VerdictItem::sizes.
void describe_rows(const Row& row, std::size_t size, VerdictItem& item) {
  const auto collective = static_cast<Collective>(row.first.collective);
  if (collective == Collective::allgather) {
    for (const auto& extra : row.extras) item.sizes.push_back(extra.empty() ? 0 : extra[0]);
  }
  if (collective != Collective::alltoall) return;
  item.sizes.reserve(size * size);
  for (const auto& extra : row.extras) {
    for (std::size_t to = 0; to < size; ++to) {
      const bool listed = extra.size() > 1;
      item.sizes.push_back(extra.empty() ? 0 : listed ? extra[1 + to] : extra[0] / size);
    }
  }
  item.matrix =
      std::any_of(item.sizes.begin(), item.sizes.end(), [&](std::uint64_t rows) { return rows != item.sizes[0]; });
  if (!item.matrix) item.sizes.resize(1);
}

}  // namespace

Coordinator::Coordinator(std::vector<int> ranks, std::size_t fusion_bytes, std::size_t cache_capacity)
    : ranks_(std::move(ranks)), fusion_bytes_(fusion_bytes), rows_(ranks_.size()), ids_(cache_capacity),
      read_(ranks_.size(), 0), blocked_(ranks_.size(), 0) {}

void Coordinator::end() {
  ended_ = true;
  rows_.clear();
  failures_.clear();
}

void Coordinator::has_read(int rank, std::uint64_t verdicts) {
  std::uint64_t& so_far = read_.at(static_cast<std::size_t>(rank));
  so_far = std::max(so_far, verdicts);
}

void Coordinator::ready(int rank, std::uint64_t read, const Ready& entry) {
  if (ended_) return;
  has_read(rank, read);
  blocked_[static_cast<std::size_t>(rank)] = 0;
  const std::int64_t now = now_ns();
  if (entry.id == 0) {
    if (!failed_before_submission(rank, read, entry.name))
      rows_.submit(rows_.of(entry.name), rank, entry, 0, entry.signature, now);
    return;
  }
  for (std::uint32_t id = entry.id; id - entry.id < entry.count; ++id) {
    const IdCache::Known& known = ids_.at(id);
    if (early_.empty() || !failed_before_submission(rank, read, *known.row->name))
      rows_.submit(*known.row, rank, entry, id, known.signature, now);
  }
}

// Returns whether this submission was in transit when a verdict failed the operation early. The
// rank fails this submission when it reads that verdict.
bool Coordinator::failed_before_submission(int rank, std::uint64_t read, const std::string& name) {
  const auto found = early_.find(name);
  if (found == early_.end()) return false;
  for (Early& early : found->second) {
    char& missing = early.missing[static_cast<std::size_t>(rank)];
    if (!missing || read >= early.number) continue;
    missing = 0;
    return true;
  }
  return false;
}

void Coordinator::join(int rank) {
  if (!ended_) rows_.join(rank);
}

void Coordinator::withdraw(int rank, const std::string& name, const std::string& why) {
  Row* const row = rows_.waiting(name);
  if (ended_ || !row || !row->is_here(static_cast<std::size_t>(rank))) return;
  fail_early(*row, why).error = ErrorKind::left;
}

// Fails an operation that some ranks may not have submitted.
Verdict& Coordinator::fail_early(Row& row, const std::string& why) {
  const std::string name = *row.name;
  const std::vector<int> missing = rows_.missing(&row);
  Verdict& verdict =
      failures_.emplace_back(Verdict{.kind = Verdict::Kind::fail, .placeholder_ranks = rows_.placeholder_ranks(row)});
  verdict.why = why;
  verdict.ranks = called(missing);
  verdict.early = !missing.empty();
  verdict.items.push_back({.name = name});
  if (verdict.early) {
    // decide() puts failures first, so the verdict's number is known.
    Early& early = early_[name].emplace_back(Early{issued_ + failures_.size(), std::vector<char>(ranks_.size(), 0)});
    for (const int rank : missing) early.missing[static_cast<std::size_t>(rank)] = 1;
  }
  rows_.remove(row);
  return verdict;
}

void Coordinator::block(int rank, std::uint64_t read) {
  if (ended_ || read != issued_ || rows_.has_due()) return;  // a verdict is in transit to the rank, or will be
  blocked_[static_cast<std::size_t>(rank)] = 1;
  std::vector<int> joined;
  for (int member = 0; member < static_cast<int>(ranks_.size()); ++member) {
    if (rows_.has_joined(member)) {
      joined.push_back(member);
    } else if (!blocked_[static_cast<std::size_t>(member)]) {
      return;
    }
  }
  std::vector<Row*> rows;
  rows_.each_waiting([&](const Row& row) { rows.push_back(rows_.waiting(*row.name)); });
  if (rows.empty()) return;
  const std::string why = deadlock_text(rows, ranks_, called(joined));
  for (Row* const row : rows) fail_early(*row, why).error = ErrorKind::mismatch;
}

std::vector<int> Coordinator::called(std::vector<int> ranks) const {
  for (int& rank : ranks) rank = ranks_[static_cast<std::size_t>(rank)];
  return ranks;
}

std::vector<int> Coordinator::missing(const std::string& name) { return called(rows_.missing(rows_.waiting(name))); }

std::vector<Coordinator::Waiting> Coordinator::waiting(std::int64_t before_ns) const {
  std::vector<Waiting> result;
  rows_.each_waiting([&](const Row& row) {
    if (row.since_ns > before_ns) return;
    Waiting& entry = result.emplace_back(Waiting{*row.name, row.since_ns, {}, called(rows_.missing(&row))});
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (row.is_here(i)) entry.here.push_back(ranks_[i]);
    }
  });
  std::sort(result.begin(), result.end(), [](const Waiting& a, const Waiting& b) { return a.since_ns < b.since_ns; });
  return result;
}

std::vector<Verdict> Coordinator::decide(std::size_t limit) {
  if (ended_ || (failures_.empty() && !rows_.has_complete() && !rows_.has_due() && !rows_.all_joined())) return {};
  Fusion fusion(fusion_bytes_);
  for (Verdict& verdict : std::exchange(failures_, {})) fusion.add(std::move(verdict));
  rows_.take_due(limit, [&](std::span<Row* const> rows) { judge(rows, fusion); });
  // Every operation that a rank had submitted was complete, and is decided unless it is still due.
  if (rows_.all_joined() && !rows_.has_due()) {
    fusion.add(
        {.kind = Verdict::Kind::all_joined, .last_joined = ranks_[static_cast<std::size_t>(rows_.last_joined())]});
    rows_.leave_join();
  }
  std::vector<Verdict> verdicts;
  if (!fusion.drafts().empty()) std::fill(blocked_.begin(), blocked_.end(), 0);
  for (Fusion::Draft& draft : fusion.drafts()) {
    ++issued_;
    // Items get their ids in the order in which ranks read the items, so that no rank forgets an id
    // before its last use.
    for (Row* const row : draft.rows) {
      append(draft.verdict.items, item_of(*row, draft.verdict));
      rows_.remove(*row);
    }
    verdicts.push_back(std::move(draft.verdict));
  }
  clean_up();
  return verdicts;
}

// Decides on a group, or on a single operation. Either all operations of a group run, or all fail.
void Coordinator::judge(std::span<Row* const> rows, Fusion& fusion) {
  std::optional<Error> why;
  for (std::size_t i = 0; i < rows.size() && !why; ++i) why = complaint(*rows[i], ranks_);
  for (Row* const row : rows) {
    if (!why) {
      fusion.add(*row, rows_.placeholder_ranks(*row));
      continue;
    }
    Verdict verdict{.kind = Verdict::Kind::fail,
                    .placeholder_ranks = rows_.placeholder_ranks(*row),
                    .error = why->kind(),
                    .why = why->what(),
                    .ranks = why->ranks()};
    verdict.items.push_back({.name = *row->name});
    fusion.add(std::move(verdict));
    rows_.remove(*row);
  }
}

VerdictItem Coordinator::item_of(Row& row, Verdict& verdict) {
  VerdictItem item;
  ids_.identify(row, item, verdict, issued_);
  if (!verdict.placeholder_ranks.empty()) item.signature = row.first;
  describe_rows(row, ranks_.size(), item);
  return item;
}

// Drops ids and early failures that no message in transit can name any more.
void Coordinator::clean_up() {
  if (!ids_.has_forgotten() && early_.empty()) return;
  const std::uint64_t read_by_all = *std::min_element(read_.begin(), read_.end());
  for (Row* const row : ids_.clean_up(read_by_all)) rows_.release(*row);
  for (auto entry = early_.begin(); entry != early_.end();) {
    std::erase_if(entry->second, [&](const Early& early) { return early.number <= read_by_all; });
    entry = entry->second.empty() ? early_.erase(entry) : std::next(entry);
  }
}

}  // namespace ringcomm
